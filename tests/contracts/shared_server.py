"""One server for a whole module; each test brings tenants of its own, so that it sees nobody else's rows.

Import the fixtures into a module whose tests need no settings of their own: it then runs several times faster.
"""

import shutil

import pytest

from api.app import close_app, create_app
from conf.settings import load_settings
from db.database import database
from db.ids import new_id
from services.api_tokens import ApiTokenService, TenantService
from services.principal import Principal
from tests.conftest import Person
from tests.fakes import ScriptedModels


@pytest.fixture(scope="module")
def models():
    return ScriptedModels()


@pytest.fixture(scope="module")
def overrides():
    """Settings laid over the defaults; a module may have a fixture of its own."""
    return {}


@pytest.fixture(scope="module")
def app(engine, prepared, models, overrides, tmp_path_factory):
    url = prepared
    if engine == "sqlite":
        copy = shutil.copy(prepared.removeprefix("sqlite:///"), tmp_path_factory.mktemp("shared") / "chatkeep.db")
        url = f"sqlite:///{copy}"
    app = create_app(load_settings(database={"url": url}, **{"runs": {"poll": 0.05}} | overrides), models=models)
    yield app
    close_app(app)
    database.obj.close_all()


def person(app, tenant):
    principal = Principal(TenantService.ensure(tenant).id)
    return Person(app.test_client(), ApiTokenService.create(principal)[1], principal.tenant_id)


@pytest.fixture
def acme():
    """The name of Alice's and Bob's tenant."""
    return f"acme {new_id()}"


@pytest.fixture
def alice(app, acme):
    return person(app, acme)


@pytest.fixture
def bob(app, acme):
    return person(app, acme)


@pytest.fixture
def charlie(app):
    return person(app, f"stranger {new_id()}")
