"""What a turn asks of the database: statements and commits, counted in this process with a scripted model."""

from api.app import close_app, create_app
from conf.settings import Settings
from db.database import database
from services.api_tokens import ApiTokenService, TenantService
from services.principal import Principal
from tests.bench.report import Report
from tests.conftest import Person
from tests.contracts.test_turn_cost import COMMITS, STATEMENTS, turn
from tests.fakes import ScriptedModels


def turn_cost(report: Report, settings: Settings) -> None:
    """A turn of a session that has some, on a server that is busy."""
    models = ScriptedModels()
    app = create_app(settings, models=models)
    principal = Principal(TenantService.ensure("counted").id)
    someone = Person(app.test_client(), ApiTokenService.create(principal)[1], principal.tenant_id)
    chat = someone.ok("POST", "/chats", {"name": "counted"})
    session = someone.ok("POST", f"/chats/{chat['id']}/sessions", {})
    heard = turn(someone, chat, session, models.default)
    report.judge("statements a turn beyond the journal", len(heard.beyond_the_journal), "", STATEMENTS)
    report.judge("commits a turn beyond the journal", heard.commits, "", COMMITS)
    close_app(app)
    database.obj.close_all()
