"""Chats: every row of peer_assertions.md 5.2 to 5.5 that design.md §7 lets stand."""
# ruff: noqa: F811 (a fixture that is imported is then named by a parameter)

from concurrent.futures import ThreadPoolExecutor

import pytest

from api.chat_fields import ChatChange
from db.database import connection
from db.models import Dialog
from services.dialog_service import DEFAULT_EMPTY_RESPONSE, DEFAULT_PROLOGUE, DEFAULT_SYSTEM
from services.knowledge.datasets import DatasetService
from services.knowledge.ingestion import add_text
from services.models import DEFAULT, model_id
from services.principal import Principal
from tests.contracts.shared_server import acme, alice, app, charlie, models, overrides  # noqa: F401

ICON = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
KEYS = {
    "create_date", "create_time", "dataset_ids", "description", "do_refer", "icon", "id", "kb_names",
    "language", "llm_id", "llm_setting", "meta_data_filter", "name", "prompt_config", "prompt_type", "rerank_id",
    "similarity_threshold",
    "status", "tenant_id", "tenant_llm_id", "tenant_rerank_id", "top_k", "top_n", "update_date", "update_time",
    "vector_similarity_weight",
}
LISTED_KEYS = KEYS - {"create_date", "update_date", "meta_data_filter", "tenant_llm_id", "tenant_rerank_id"} | {
    "nickname", "tenant_avatar",
}
KNOWLEDGE, DATE = {"key": "knowledge", "optional": False}, {"key": "date", "optional": True}
TWICE = [{"key": "knowledge", "optional": False}, {"key": "knowledge", "optional": True}]


def table(**rows):
    """One parametrize list: the ids are the rows' names in words."""
    return [pytest.param(*row, id=name.replace("_", " ")) for name, row in rows.items()]


@pytest.fixture
def rows_of_chats(alice):
    """Reads Alice's rows, deleted ones too."""

    def read():
        with connection():
            return list(Dialog.select().where(Dialog.tenant_id == alice.tenant_id).order_by(Dialog.id).dicts())

    return read


@pytest.fixture
def stored(alice, chat):
    """Alice's chat as it is read."""
    return alice.ok("GET", f"/chats/{chat['id']}")


@pytest.fixture
def dataset(alice):
    """A dataset of Alice's with one parsed document."""
    made = DatasetService.create(Principal(alice.tenant_id), "manual")
    add_text(Principal(alice.tenant_id), made.id, "manual.md", "A pump moves water.")
    return made


@pytest.fixture
def empty_dataset(alice):
    return DatasetService.create(Principal(alice.tenant_id), "nothing parsed")


@pytest.fixture
def five(alice):
    """Five chats, made one after the other."""
    return [alice.ok("POST", "/chats", {"name": name}) for name in ("c_0", "c_3", "x_1", "b%2", "A_4")]


def names(found):
    return [chat["name"] for chat in found["chats"]]


# -- 5.2 POST /chats ----------------------------------------------------------------------------


def test_a_new_chat_has_exactly_ragflows_keys(alice):
    made = alice.ok("POST", "/chats", {"name": "valid_name", "dataset_ids": []})
    assert set(made) == KEYS
    assert (made["name"], made["dataset_ids"], made["kb_names"], made["status"]) == ("valid_name", [], [], "1")
    assert made["tenant_id"] == alice.tenant_id
    assert len(made["id"]) == 32 and set(made["id"]) <= set("0123456789abcdef")
    assert alice.ok("GET", f"/chats/{made['id']}") == made


def test_what_the_body_leaves_out_gets_ragflows_defaults(alice):
    made = alice.ok("POST", "/chats", {"name": "defaults"})
    assert made["prompt_config"] == {
        "system": DEFAULT_SYSTEM, "prologue": DEFAULT_PROLOGUE, "empty_response": DEFAULT_EMPTY_RESPONSE,
        "quote": True, "tts": False, "refine_multiturn": True, "parameters": [KNOWLEDGE, DATE],
    }
    wanted = {
        "similarity_threshold": 0.1, "vector_similarity_weight": 0.3, "top_n": 6, "top_k": 1024, "rerank_id": "",
        "description": "A helpful Assistant", "icon": "", "llm_setting": {},
    }
    assert {key: made[key] for key in wanted} == wanted


def test_the_default_texts_are_ragflows(alice):
    prompt = alice.ok("POST", "/chats", {"name": "defaults"})["prompt_config"]
    assert prompt["prologue"] == "Hi! I'm your assistant. What can I do for you?"
    assert prompt["empty_response"] == "Sorry! No relevant content was found in the knowledge base!"
    assert "{knowledge}" in prompt["system"]


NAMES_REFUSED = table(
    empty=("", "`name` is required"),
    blank=(" ", "`name` is required"),
    null=(None, "`name` is required"),
    number=(1, "chat name must be a string"),
    list=(["a"], "chat name must be a string"),
    ascii_too_long=("a" * 256, "chat name length is 256 which is larger than 255"),
    cjk_too_long=("\u4e2d" * 86, "chat name length is 258 which is larger than 255"),
)


@pytest.mark.parametrize(("name", "message"), NAMES_REFUSED)
def test_a_name_that_is_no_name_makes_no_chat(alice, name, message, rows_of_chats):
    assert alice.refused("POST", "/chats", {"name": name}) == (102, message)
    assert rows_of_chats() == []


def test_a_missing_name_makes_no_chat(alice):
    assert alice.refused("POST", "/chats", {"dataset_ids": []}) == (102, "`name` is required")
    assert alice.refused("POST", "/chats") == (102, "`name` is required")


def test_a_name_of_255_bytes_is_kept_and_trimmed(alice):
    assert alice.ok("POST", "/chats", {"name": "a" * 255})["name"] == "a" * 255
    assert alice.ok("POST", "/chats", {"name": "  \u4e2d" + "\u4e2d" * 84 + "\t"})["name"] == "\u4e2d" * 85


@pytest.mark.parametrize(("first", "second"), table(
    same=("probe", "probe"), other_case=("CASE INSENSITIVE", "case insensitive"),
    padded=(" probe chat ", "probe chat"), umlaut=("\u00c4pfel", "a\u0308pfel"), sharp_s=("STRASSE", "stra\u00dfe"),
))
def test_a_name_is_given_once_whatever_its_case(alice, first, second, rows_of_chats):
    alice.ok("POST", "/chats", {"name": first})
    assert alice.refused("POST", "/chats", {"name": second}) == (102, "duplicated chat name in creating chat")
    assert len(rows_of_chats()) == 1


def test_another_tenant_and_a_deleted_chat_leave_a_name_free(alice, charlie):
    made = alice.ok("POST", "/chats", {"name": "free"})
    charlie.ok("POST", "/chats", {"name": "free"})
    alice.ok("DELETE", f"/chats/{made['id']}")
    assert alice.ok("POST", "/chats", {"name": "FREE"})["id"] != made["id"]


def test_the_same_name_at_the_same_moment_makes_one_chat(app, alice):
    def create(_):
        headers = {"Authorization": f"Bearer {alice.token}"}
        return app.test_client().post("/api/v1/chats", json={"name": "race"}, headers=headers).get_json()["code"]

    with ThreadPoolExecutor(5) as pool:
        assert sorted(pool.map(create, range(10))) == [0] + [102] * 9


@pytest.mark.parametrize("ids", [[], None, ["", None]], ids=["empty", "null", "empty items"])
def test_no_datasets_are_an_empty_list(alice, ids):
    assert alice.ok("POST", "/chats", {"name": "none", "dataset_ids": ids})["dataset_ids"] == []


def test_an_owned_and_parsed_dataset_is_answered_with_its_name(alice, dataset):
    made = alice.ok("POST", "/chats", {"name": "with", "dataset_ids": [dataset.id]})
    assert (made["dataset_ids"], made["kb_names"]) == ([dataset.id], ["manual"])


DATASETS_REFUSED = table(
    unknown=(["invalid_dataset_id"], "You don't own the dataset invalid_dataset_id"),
    a_text=("invalid_dataset_id", "`dataset_ids` should be a list."),
    an_object=({}, "`dataset_ids` should be a list."),
    a_number=(1, "`dataset_ids` should be a list."),
)


@pytest.mark.parametrize(("ids", "message"), DATASETS_REFUSED)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_a_dataset_that_is_not_ones_own_is_refused(alice, chat, method, ids, message, rows_of_chats):
    path = "/chats" if method == "POST" else f"/chats/{chat['id']}"
    before = rows_of_chats()
    assert alice.refused(method, path, {"name": "other", "dataset_ids": ids}) == (102, message)
    assert rows_of_chats() == before


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_a_dataset_without_a_parsed_file_is_refused(alice, chat, empty_dataset, method):
    path = "/chats" if method == "POST" else f"/chats/{chat['id']}"
    refusal = alice.refused(method, path, {"name": "other", "dataset_ids": [empty_dataset.id]})
    assert refusal == (102, f"The dataset {empty_dataset.id} doesn't own parsed file")


def test_another_tenants_dataset_looks_unknown(alice, charlie, dataset):
    refusal = charlie.refused("POST", "/chats", {"name": "theft", "dataset_ids": [dataset.id]})
    assert refusal == (102, f"You don't own the dataset {dataset.id}")


def test_a_chat_survives_its_dataset(alice, dataset):
    made = alice.ok("POST", "/chats", {"name": "with", "dataset_ids": [dataset.id]})
    DatasetService.delete(Principal(alice.tenant_id), [dataset.id])
    [listed] = alice.ok("GET", "/chats")["chats"]
    assert (listed["id"], listed["dataset_ids"], listed["kb_names"]) == (made["id"], [], [])


def test_an_icon_comes_back_as_it_was_sent(alice):
    made = alice.ok("POST", "/chats", {"name": "icon", "icon": ICON})
    assert made["icon"] == ICON
    assert alice.ok("GET", f"/chats/{made['id']}")["icon"] == ICON


SETTINGS_KEPT = {
    "temperature": [0, 1, -1, 10, "a"], "top_p": [0, 1, -1, 10, "a"], "presence_penalty": [0, 1, -1, 10, "a"],
    "frequency_penalty": [0, 1, -1, 10, "a"], "max_token": [0, 1024, -1, 10, "a"], "unknown": ["unknown", 0.5, None],
}


@pytest.mark.parametrize("key", SETTINGS_KEPT)
def test_llm_settings_are_kept_exactly_without_a_check(alice, chat, key):
    for n, value in enumerate(SETTINGS_KEPT[key]):
        made = alice.ok("POST", "/chats", {"name": f"created {n}", "llm_setting": {key: value}})
        put = alice.ok("PUT", f"/chats/{chat['id']}", {"llm_setting": {key: value}})
        assert made["llm_setting"] == put["llm_setting"] == {key: value}


NUMBERS_KEPT = {
    "similarity_threshold": [0, 1, -1, 10, 0.25], "vector_similarity_weight": [0, 1, 2, -9, 0.25],
    "top_n": [0, 1, -1, 10], "top_k": [0, 1, 1024],
}


@pytest.mark.parametrize("key", NUMBERS_KEPT)
def test_numbers_are_stored_as_given_and_a_text_as_zero(alice, chat, key):
    for n, value in enumerate([*NUMBERS_KEPT[key], "a"]):
        stored = 0 if value == "a" else value
        made = alice.ok("POST", "/chats", {"name": f"created {n}", key: value})
        put = alice.ok("PUT", f"/chats/{chat['id']}", {key: value})
        assert made[key] == put[key] == alice.ok("GET", f"/chats/{chat['id']}")[key] == stored


def test_a_chat_without_a_model_gets_the_id_of_the_default(alice):
    made = alice.ok("POST", "/chats", {"name": "default model"})
    assert made["llm_id"] == made["tenant_llm_id"] == model_id(DEFAULT)
    assert len(made["llm_id"]) == 32 and set(made["llm_id"]) <= set("0123456789abcdef")


@pytest.mark.parametrize("llm_id", ["other-model", DEFAULT])
def test_a_model_that_the_operator_set_up_is_kept_verbatim(alice, llm_id):
    made = alice.ok("POST", "/chats", {"name": "model", "llm_id": llm_id})
    assert (made["llm_id"], made["tenant_llm_id"]) == (llm_id, model_id(llm_id))


def test_a_tenant_model_id_says_the_model_too(alice):
    made = alice.ok("POST", "/chats", {"name": "model", "tenant_llm_id": model_id("other-model")})
    assert made["tenant_llm_id"] == model_id("other-model")
    assert made["llm_id"] in ("other-model", model_id("other-model"))


MODELS_REFUSED = table(
    unknown=({"llm_id": "unknown"}, "`llm_id` unknown doesn't exist"),
    of_another_product=({"llm_id": "glm-4"}, "`llm_id` glm-4 doesn't exist"),
    no_text=({"llm_id": 1}, "`llm_id` must be a string"),
    a_list=({"llm_id": ["default"]}, "`llm_id` must be a string"),
    id_no_text=({"tenant_llm_id": 1}, "`tenant_llm_id` must be a tenant model id"),
    id_unknown=({"tenant_llm_id": "f" * 32}, "`tenant_llm_id` must be a valid tenant model id"),
    two_models=({"llm_id": DEFAULT, "tenant_llm_id": model_id("other-model")},
                "`llm_id` and `tenant_llm_id` must refer to the same model"),
    rerank_unknown=({"rerank_id": "unknown-rerank-model"}, "`rerank_id` unknown-rerank-model doesn't exist"),
    rerank_no_text=({"rerank_id": 1}, "`rerank_id` must be a string"),
    rerank_id_no_text=({"tenant_rerank_id": 1}, "`tenant_rerank_id` must be a tenant model id"),
    rerank_id_unknown=({"tenant_rerank_id": "f" * 32}, "`tenant_rerank_id` must be a valid tenant model id"),
)


@pytest.mark.parametrize(("fields", "message"), MODELS_REFUSED)
def test_a_model_that_does_not_exist_is_refused_everywhere(alice, chat, fields, message, rows_of_chats):
    before = rows_of_chats()
    assert alice.refused("POST", "/chats", {"name": "other"} | fields) == (102, message)
    for method in ("PUT", "PATCH"):
        assert alice.refused(method, f"/chats/{chat['id']}", {"name": "other"} | fields) == (102, message)
    assert rows_of_chats() == before


@pytest.mark.parametrize("rerank_id", [
    "", "BAAI/bge-reranker-v2-m3", "maidalun1020/bce-reranker-base_v1", "BAAI/bge-reranker-v2-m3@BAAI",
])
def test_ragflows_built_in_rerankers_are_accepted(alice, rerank_id):
    assert alice.ok("POST", "/chats", {"name": "rerank", "rerank_id": rerank_id})["rerank_id"] == rerank_id


def test_a_tenant_cannot_be_chosen_but_an_empty_one_is_no_choice(alice):
    refusal = alice.refused("POST", "/chats", {"name": "x", "tenant_id": alice.tenant_id})
    assert refusal == (102, "`tenant_id` must not be provided")
    assert alice.ok("POST", "/chats", {"name": "x", "tenant_id": ""})["tenant_id"] == alice.tenant_id


PROMPTS_KEPT = {
    "empty_response": ["Sorry", "", "!@#$%^&*()", "\u4e2d\u6587", 123, True, " "],
    "prologue": ["Hello", "", "!@#$%^&*()", "\u4e2d\u6587", 123, True, " "],
    "quote": [True, False],
    "system": ["With {knowledge}.", "Without.", "\u4e2d\u6587 {knowledge}", 123, True],
    "unknown": ["unknown", {"a": [1.5, None]}],
}


@pytest.mark.parametrize("key", PROMPTS_KEPT)
def test_prompt_fields_come_back_exactly_with_their_type(alice, chat, key):
    for n, value in enumerate(PROMPTS_KEPT[key]):
        made = alice.ok("POST", "/chats", {"name": f"created {n}", "prompt_config": {key: value}})["prompt_config"]
        put = alice.ok("PUT", f"/chats/{chat['id']}", {"prompt_config": {key: value}})["prompt_config"]
        assert repr(made[key]) == repr(put[key]) == repr(value)


def test_an_empty_system_prompt_gets_the_default(alice):
    made = alice.ok("POST", "/chats", {"name": "system", "prompt_config": {"system": ""}})
    assert made["prompt_config"]["system"] == DEFAULT_SYSTEM


@pytest.mark.parametrize(("given", "kept"), table(
    none=([], [DATE]), only_date=([DATE], [DATE]), knowledge=([KNOWLEDGE], [KNOWLEDGE, DATE]),
    own=([{"key": "tone", "optional": True}], [{"key": "tone", "optional": True}, DATE]),
))
def test_a_date_parameter_is_always_there_on_create(alice, given, kept):
    made = alice.ok("POST", "/chats", {"name": "parameters", "prompt_config": {"parameters": given}})
    assert made["prompt_config"]["parameters"] == kept


def test_a_knowledge_parameter_comes_with_datasets(alice, dataset):
    prompt = {"parameters": [], "system": "Use {knowledge}."}
    made = alice.ok("POST", "/chats", {"name": "p", "dataset_ids": [dataset.id], "prompt_config": prompt})
    assert made["prompt_config"]["parameters"] == [KNOWLEDGE, DATE]


PROMPTS_REFUSED = table(
    null=(None, "`prompt_config` should be an object."),
    text=("x", "`prompt_config` should be an object."),
    list=([], "`prompt_config` should be an object."),
    repeated_parameter=({"parameters": TWICE}, "`parameters` contains duplicate key: knowledge"),
)


@pytest.mark.parametrize(("prompt", "message"), PROMPTS_REFUSED)
def test_a_prompt_that_is_none_is_refused_everywhere(alice, chat, prompt, message, rows_of_chats):
    before = rows_of_chats()
    assert alice.refused("POST", "/chats", {"name": "other", "prompt_config": prompt}) == (102, message)
    for method in ("PUT", "PATCH"):
        assert alice.refused(method, f"/chats/{chat['id']}", {"prompt_config": prompt}) == (102, message)
    assert rows_of_chats() == before


@pytest.mark.parametrize("parameters", ["x", {}, [1], ["key"], [None]])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_parameters_that_are_no_list_of_objects_are_an_argument_error(alice, chat, method, parameters):
    path = "/chats" if method == "POST" else f"/chats/{chat['id']}"
    body = {"name": "other", "prompt_config": {"parameters": parameters}}
    assert alice.refused(method, path, body)[0] == 101


@pytest.mark.parametrize("field", sorted(ChatChange.__annotations__))
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_a_null_is_taken_or_refused_by_its_name(alice, chat, method, field):
    path = "/chats" if method == "POST" else f"/chats/{chat['id']}"
    body = alice(method, path, {"name": "nulls"} | {field: None}).get_json()
    assert body["code"] == 0 or f"`{field}`" in body["message"]


def test_what_a_client_may_not_set_is_dropped(alice):
    body = {"name": "mine", "id": "a" * 32, "status": "0", "kb_ids": ["kb"], "created_by": "x", "create_time": 1}
    made = alice.ok("POST", "/chats", body | {"surprise": True})
    assert made["id"] != "a" * 32 and made["create_time"] > 1
    assert (made["status"], made["dataset_ids"]) == ("1", [])
    assert set(alice.ok("GET", f"/chats/{made['id']}")) == KEYS


def test_the_checks_of_create_come_in_ragflows_order(alice, chat):
    body = {
        "tenant_id": "t", "name": "", "dataset_ids": "x", "llm_id": "unknown", "rerank_id": "unknown",
        "prompt_config": {"parameters": TWICE},
    }
    said = [alice.refused("POST", "/chats", body)[1]]
    for mended in ({"tenant_id": ""}, {"name": chat["name"]}, {"dataset_ids": []}, {"llm_id": ""}, {"rerank_id": ""},
                   {"prompt_config": {}}):
        body |= mended
        said.append(alice.refused("POST", "/chats", body)[1])
    assert said == [
        "`tenant_id` must not be provided", "`name` is required", "`dataset_ids` should be a list.",
        "`llm_id` unknown doesn't exist", "`rerank_id` unknown doesn't exist",
        "`parameters` contains duplicate key: knowledge", "duplicated chat name in creating chat",
    ]


# -- 5.3 GET /chats and /chats/<id> -------------------------------------------------------------


def test_a_list_holds_the_chats_and_their_number(alice, five):
    found = alice.ok("GET", "/chats")
    assert set(found) == {"chats", "total"}
    assert (names(found), found["total"]) == (["A_4", "b%2", "x_1", "c_3", "c_0"], 5)


def test_a_listed_chat_has_the_keys_of_ragflows_list(alice, chat):
    [listed] = alice.ok("GET", "/chats")["chats"]
    assert set(listed) >= LISTED_KEYS
    assert "kb_ids" not in listed


LISTS = table(
    keywords_empty=("keywords=", 5, 5), keywords_part=("keywords=x_1", 1, 1),
    keywords_unknown=("keywords=unknown", 0, 0),
    keywords_other_case=("keywords=a_", 1, 1), percent_is_literal=("keywords=%25", 1, 1),
    underscore_is_literal=("keywords=_", 4, 4), name=("name=x_1", 1, 1), name_other_case=("name=X_1", 1, 1),
    name_is_whole=("name=x", 0, 0), keywords_are_ignored_beside_a_name=("name=x_1&keywords=c", 1, 1),
    unknown_id=("id=unknown", 0, 0), empty_id_and_name=("id=&name=", 5, 5),
    first_page=("page=1&page_size=2", 2, 5), second_page=("page=2&page_size=2", 2, 5),
    last_page=("page=3&page_size=2", 1, 5), beyond=("page=4&page_size=2", 0, 5), page_zero=("page=0&page_size=2", 2, 5),
    page_absent=("page_size=2", 2, 5), page_negative=("page=-1&page_size=2", 2, 5),
    page_text=("page=a&page_size=2", 2, 5),
    size_one=("page_size=1", 1, 5), size_zero=("page_size=0", 5, 5), size_negative=("page_size=-1", 5, 5),
    size_text=("page_size=a", 5, 5), size_hundred=("page_size=100", 5, 5),
    unknown_parameter=("surprise=1", 5, 5),
    own_tenant=("owner_ids={own}", 5, 5), other_tenant=("owner_ids=unknown", 0, 0),
    own_and_other=("owner_ids={own}&owner_ids=unknown", 5, 5),
)


def test_filters_and_pages_choose_what_is_listed(alice, five):
    for query, count, total in [row.values for row in LISTS]:
        found = alice.ok("GET", "/chats?" + query.format(own=alice.tenant_id))
        assert (query, len(found["chats"]), found["total"]) == (query, count, total)


@pytest.mark.parametrize("page", [999_999_999, 10**9, 10**20])
def test_a_page_number_beyond_all_pages_is_an_empty_list(alice, five, page):
    found = alice.ok("GET", f"/chats?page={page}&page_size=100")
    assert (found["chats"], found["total"]) == ([], 5)


def test_an_id_finds_its_chat_alone_and_not_after_it_is_deleted(alice, five):
    found = alice.ok("GET", f"/chats?id={five[1]['id']}&keywords=zzz")
    assert (names(found), found["total"]) == (["c_3"], 1)
    alice.ok("DELETE", f"/chats/{five[1]['id']}")
    assert alice.ok("GET", f"/chats?id={five[1]['id']}") == {"chats": [], "total": 0}


BY_TIME, BY_NAME = ["c_0", "c_3", "x_1", "b%2", "A_4"], ["A_4", "b%2", "c_0", "c_3", "x_1"]


def test_a_list_is_descending_unless_desc_is_the_text_false(alice, five):
    for desc in ("", "&desc=", "&desc=true", "&desc=True", "&desc=unknown", "&desc=0", "&desc=no"):
        for field in ("create_time", "update_time"):
            assert names(alice.ok("GET", f"/chats?orderby={field}{desc}")) == BY_TIME[::-1]
    for desc in ("false", "False", "FALSE"):
        assert names(alice.ok("GET", f"/chats?desc={desc}")) == BY_TIME
        assert names(alice.ok("GET", f"/chats?orderby=name&desc={desc}")) == BY_NAME


def test_many_chats_of_one_millisecond_keep_their_order_over_pages(alice, five):
    with connection():
        Dialog.update(create_time=1, update_time=1).where(Dialog.tenant_id == alice.tenant_id).execute()
    whole = [chat["id"] for chat in alice.ok("GET", "/chats")["chats"]]
    assert whole == [chat["id"] for chat in five[::-1]]
    assert [alice.ok("GET", f"/chats?page_size=1&page={n}")["chats"][0]["id"] for n in range(1, 6)] == whole


LISTS_REFUSED = table(
    unknown_order=("orderby=unknown", "invalid orderby field: unknown"),
    empty_order=("orderby=", "invalid orderby field: "),
    order_is_checked_before_the_page=("orderby=unknown&page_size=101", "invalid orderby field: unknown"),
    large_page=("page_size=101", "page_size must be less than or equal to 100"),
    huge_page=(f"page_size={10**20}", "page_size must be less than or equal to 100"),
    many_owners=("&".join(f"owner_ids={n}" for n in range(101)), "owner_ids must contain at most 100 IDs"),
)


@pytest.mark.parametrize(("query", "message"), LISTS_REFUSED)
def test_a_list_that_cannot_be_is_an_argument_error(alice, query, message):
    assert alice.refused("GET", f"/chats?{query}") == (101, message)


def test_one_chat_is_read_whole(alice, chat):
    found = alice.ok("GET", f"/chats/{chat['id']}")
    assert set(found) == KEYS


# -- 5.4 PUT and PATCH /chats/<id> --------------------------------------------------------------


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_chat_is_renamed_and_keeps_the_rest(alice, stored, method):
    changed = alice.ok(method, f"/chats/{stored['id']}", {"name": " renamed ", "dataset_ids": []})
    assert changed["name"] == "renamed"
    assert alice.ok("GET", f"/chats/{stored['id']}") == changed
    for key in KEYS - {"name", "update_time", "update_date"}:
        assert changed[key] == stored[key]


RENAMES_REFUSED = table(
    patch_long=("PATCH", "a" * 256, 102, "chat name length is 256 which is larger than 255"),
    put_long=("PUT", "a" * 256, 102, "chat name length is 256 which is larger than 255"),
    patch_number=("PATCH", 1, 102, "chat name must be a string"),
    put_number=("PUT", 1, 102, "chat name must be a string"),
    patch_empty=("PATCH", "", 102, "`name` cannot be empty"), patch_blank=("PATCH", " ", 102, "`name` cannot be empty"),
    put_empty=("PUT", "", 102, "`name` is required"), put_blank=("PUT", " ", 102, "`name` is required"),
    put_null=("PUT", None, 102, "`name` is required"),
    patch_taken=("PATCH", "OTHER", 102, "duplicated chat name"),
    put_taken=("PUT", " other ", 102, "duplicated chat name"),
)


@pytest.mark.parametrize(("method", "name", "code", "message"), RENAMES_REFUSED)
def test_a_new_name_that_is_none_or_taken_changes_nothing(alice, chat, method, name, code, message, rows_of_chats):
    alice.ok("POST", "/chats", {"name": "Other"})
    before = rows_of_chats()
    assert alice.refused(method, f"/chats/{chat['id']}", {"name": name}) == (code, message)
    assert rows_of_chats() == before


def test_patching_the_name_to_null_is_an_argument_error(alice, stored):
    assert alice.refused("PATCH", f"/chats/{stored['id']}", {"name": None})[0] == 101
    assert alice.ok("GET", f"/chats/{stored['id']}") == stored


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_the_own_name_in_other_case_is_no_duplicate(alice, chat, method):
    assert alice.ok(method, f"/chats/{chat['id']}", {"name": "ALICE'S CHAT"})["name"] == "ALICE'S CHAT"


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize("body", [{"name": "x"}, {"name": ""}, {}], ids=["good", "bad", "empty"])
def test_an_unknown_or_deleted_chat_is_109_before_the_body_is_checked(alice, chat, method, body):
    alice.ok("DELETE", f"/chats/{chat['id']}")
    for chat_id in ("0" * 32, chat["id"]):
        assert alice.refused(method, f"/chats/{chat_id}", body) == (109, "no authorization")


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_datasets_are_replaced(alice, chat, dataset, method):
    path = f"/chats/{chat['id']}"
    assert alice.ok(method, path, {"dataset_ids": [dataset.id]})["dataset_ids"] == [dataset.id]
    assert alice.ok(method, path, {"name": "still"})["dataset_ids"] == [dataset.id]
    assert alice.ok(method, path, {"dataset_ids": []})["dataset_ids"] == []


def test_put_replaces_objects_and_patch_merges_one_level(alice, chat):
    path = f"/chats/{chat['id']}"
    alice.ok("PUT", path, {"llm_setting": {"a": {"x": 1}, "b": 1}})
    assert alice.ok("PATCH", path, {"llm_setting": {"a": {"y": 2}}})["llm_setting"] == {"a": {"y": 2}, "b": 1}
    assert alice.ok("PUT", path, {"llm_setting": {"c": 1}})["llm_setting"] == {"c": 1}
    assert alice.ok("PUT", path, {"name": "kept"})["llm_setting"] == {"c": 1}


def test_put_gives_a_prompt_no_defaults_back(alice, chat):
    prompt = {"parameters": [], "system": "x"}
    assert alice.ok("PUT", f"/chats/{chat['id']}", {"prompt_config": prompt})["prompt_config"] == prompt


def test_patch_changes_one_key_of_the_prompt(alice, chat):
    changed = alice.ok("PATCH", f"/chats/{chat['id']}", {"prompt_config": {"quote": False}})
    assert changed["prompt_config"] == chat["prompt_config"] | {"quote": False}


def test_a_system_prompt_without_its_placeholder_is_stored(alice, chat):
    prompt = {"system": "No placeholder.", "parameters": [KNOWLEDGE]}
    alice.ok("PATCH", f"/chats/{chat['id']}", {"prompt_config": prompt})
    stored = alice.ok("GET", f"/chats/{chat['id']}")["prompt_config"]
    assert {key: stored[key] for key in prompt} == prompt


@pytest.mark.parametrize("value", ["x", [], None, 1])
def test_llm_settings_that_are_no_object_are_102_on_patch(alice, chat, value):
    refusal = alice.refused("PATCH", f"/chats/{chat['id']}", {"llm_setting": value})
    assert refusal == (102, "`llm_setting` should be an object.")


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_llm_settings_that_are_no_object_are_an_argument_error_elsewhere(alice, chat, method, rows_of_chats):
    path = "/chats" if method == "POST" else f"/chats/{chat['id']}"
    before = rows_of_chats()
    assert alice.refused(method, path, {"name": "other", "llm_setting": "x"})[0] == 101
    assert rows_of_chats() == before


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_icon_name_and_datasets_change_together(alice, chat, dataset, method):
    body = {"icon": "raw-avatar-value", "dataset_ids": [dataset.id], "name": "all three"}
    alice.ok(method, f"/chats/{chat['id']}", body)
    found = alice.ok("GET", f"/chats/{chat['id']}")
    assert {key: found[key] for key in body} == body


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_an_update_ignores_what_a_client_may_not_set(alice, stored, method):
    body = {"id": "x", "status": "0", "kb_ids": ["kb"], "create_time": 1, "surprise": True, "name": "new"}
    changed = alice.ok(method, f"/chats/{stored['id']}", body)
    assert [told.split("`")[1] for told in changed.pop("warnings")] == ["kb_ids", "status"]
    assert changed == stored | {key: changed[key] for key in ("name", "update_time", "update_date")}
    assert alice.ok("GET", f"/chats/{stored['id']}")["name"] == "new"


def test_put_refuses_a_tenant_and_patch_ignores_it(alice, charlie, chat):
    body = {"tenant_id": charlie.tenant_id}
    refusal = alice.refused("PUT", f"/chats/{chat['id']}", body)
    assert refusal == (102, "`tenant_id` must not be provided")
    assert alice.ok("PATCH", f"/chats/{chat['id']}", body)["tenant_id"] == alice.tenant_id


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_an_empty_update_touches_the_time_only(alice, stored, method):
    with connection():
        Dialog.update(update_time=1).where(Dialog.id == stored["id"]).execute()
    changed = alice.ok(method, f"/chats/{stored['id']}", {})
    assert changed["update_time"] >= stored["update_time"]
    assert changed == stored | {key: changed[key] for key in ("update_time", "update_date")}


@pytest.mark.parametrize(("given", "filled"), [("llm_id", "tenant_llm_id"), ("tenant_llm_id", "llm_id")])
def test_one_half_of_a_model_pair_fills_the_other(alice, chat, given, filled):
    value = "other-model" if given == "llm_id" else model_id("other-model")
    changed = alice.ok("PATCH", f"/chats/{chat['id']}", {given: value})
    assert changed[given] == value
    assert changed[filled] in ("other-model", model_id("other-model"))


# -- 5.5 DELETE /chats and /chats/<id> ----------------------------------------------------------


@pytest.mark.parametrize("body", [
    None, {}, {"ids": []}, {"ids": None}, {"ids": None, "delete_all": False}, {"delete_all": "true"}, {"delete_all": 1},
], ids=str)
def test_a_deletion_without_ids_deletes_nothing(alice, five, body):
    answer = alice("DELETE", "/chats", body).get_json()
    assert answer == {"code": 0, "message": "success", "data": {}}
    assert alice.ok("GET", "/chats")["total"] == 5


@pytest.mark.parametrize("all_of_them", [False, True], ids=["by id", "delete all"])
def test_all_chats_are_deleted_and_counted(alice, charlie, five, all_of_them):
    theirs = charlie.ok("POST", "/chats", {"name": "c_0"})
    body = {"ids": None, "delete_all": True} if all_of_them else {"ids": [chat["id"] for chat in five]}
    assert alice.ok("DELETE", "/chats", body) == {"success_count": 5}
    assert alice.ok("GET", "/chats")["total"] == 0
    assert alice.ok("DELETE", "/chats", {"delete_all": True}) == {}
    assert charlie.ok("GET", f"/chats/{theirs['id']}") ["status"] == "1"


@pytest.mark.parametrize("unknown", ["invalid_id", "\n!?\u3002\uff1b", "!@#$%^&*()", " "])
def test_an_unknown_id_is_named_as_it_was_sent(alice, five, unknown):
    assert alice.refused("DELETE", "/chats", {"ids": [unknown]}) == (102, f"Chat({unknown}) not found.")
    assert alice.ok("GET", "/chats")["total"] == 5


def test_several_unknown_ids_are_named_together(alice):
    code, message = alice.refused("DELETE", "/chats", {"ids": ["a", "b"]})
    assert (code, sorted(message.split("; "))) == (102, ["Chat(a) not found.", "Chat(b) not found."])


@pytest.mark.parametrize("place", [0, 2, 5], ids=["first", "in the middle", "last"])
@pytest.mark.parametrize("unknown", ["invalid_id", "!@#$%^&*()"])
def test_an_unknown_id_among_known_ones_is_reported(alice, five, place, unknown):
    ids = [chat["id"] for chat in five]
    ids.insert(place, unknown)
    answer = alice("DELETE", "/chats", {"ids": ids}).get_json()
    assert answer == {
        "code": 0, "message": "Partially deleted 5 chats with 1 errors",
        "data": {"success_count": 5, "errors": [f"Chat({unknown}) not found."]},
    }
    assert alice.ok("GET", "/chats")["total"] == 0


def test_every_id_twice_is_deleted_once_and_reported(alice, five):
    ids = [chat["id"] for chat in five]
    deleted = alice.ok("DELETE", "/chats", {"ids": ids + ids})
    assert deleted["success_count"] == 5
    assert sorted(deleted["errors"]) == sorted(f"Duplicate chat ids: {id}" for id in ids)


def test_one_id_three_times_is_reported_once(alice, chat):
    deleted = alice.ok("DELETE", "/chats", {"ids": [chat["id"]] * 3})
    assert deleted == {"success_count": 1, "errors": [f"Duplicate chat ids: {chat['id']}"]}


def test_missing_ids_are_reported_before_repeated_ones(alice, chat):
    deleted = alice.ok("DELETE", "/chats", {"ids": [chat["id"], chat["id"], "gone"]})
    assert deleted["errors"] == ["Chat(gone) not found.", f"Duplicate chat ids: {chat['id']}"]


def test_a_repeated_deletion_finds_nothing(alice, five):
    ids = [chat["id"] for chat in five]
    alice.ok("DELETE", "/chats", {"ids": ids})
    code, message = alice.refused("DELETE", "/chats", {"ids": ids})
    assert code == 102
    assert all(f"Chat({id}) not found." in message for id in ids)


def test_twenty_deletions_by_five_threads_all_succeed(app, alice):
    ids = [alice.ok("POST", "/chats", {"name": f"chat {n}"})["id"] for n in range(20)]

    def delete(id):
        headers = {"Authorization": f"Bearer {alice.token}"}
        return app.test_client().delete("/api/v1/chats", json={"ids": [id]}, headers=headers).get_json()

    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(delete, ids))
    assert [(answer["code"], answer["data"]) for answer in answers] == [(0, {"success_count": 1})] * 20
    assert alice.ok("GET", "/chats")["total"] == 0


def test_a_thousand_ids_go_in_one_call_and_no_more(alice, chat):
    ids = [f"unknown {n}" for n in range(999)] + [chat["id"]]
    assert alice.refused("DELETE", "/chats", {"ids": [*ids, "one more"]})[0] == 101
    deleted = alice.ok("DELETE", "/chats", {"ids": ids})
    assert (deleted["success_count"], len(deleted["errors"])) == (1, 999)


def test_ids_as_a_text_are_not_taken_apart(alice, chat):
    assert alice.refused("DELETE", "/chats", {"ids": "ab"})[0] == 101
    assert alice.refused("DELETE", "/chats", {"ids": chat["id"]})[0] == 101
    assert alice.ok("GET", "/chats")["total"] == 1


def test_a_null_among_the_ids_is_102_and_deletes_nothing(alice, stored):
    for ids in ([None], [stored["id"], None]):
        assert alice.refused("DELETE", "/chats", {"ids": ids})[0] == 102
    assert alice.ok("GET", f"/chats/{stored['id']}") == stored


def test_the_old_form_deletes_ones_own_chat_only(alice, charlie, chat):
    body = {"chat_id": chat["id"]}
    refusal = (102, f"Failed to delete chat {chat['id']}")
    assert charlie.refused("DELETE", "/chats", body) == refusal
    assert alice.ok("DELETE", "/chats", body) is True
    assert alice.refused("DELETE", "/chats", body) == refusal


def test_one_chat_is_deleted_once(alice, chat):
    assert alice.ok("DELETE", f"/chats/{chat['id']}") is True
    assert alice.refused("DELETE", f"/chats/{chat['id']}") == (109, "no authorization")


def test_a_deleted_chat_is_gone_with_its_sessions(alice, chat, session):
    alice.ok("DELETE", f"/chats/{chat['id']}")
    sessions = f"/chats/{chat['id']}/sessions"
    for method, path in [("GET", f"/chats/{chat['id']}"), ("GET", sessions), ("POST", sessions),
                         ("PATCH", f"{sessions}/{session['id']}"), ("GET", f"{sessions}/{session['id']}")]:
        assert alice.refused(method, path) == (109, "no authorization")
    assert alice.ok("GET", "/chats") == {"chats": [], "total": 0}
