"""The OpenAPI document follows the settings: base path, limits."""

import re

import jsonschema_rs
import pytest

from api.body import VISIBLE

SECTIONS = {"server": {"base_path": "/keep"}, "limits": {"ids": 7, "message_bytes": 70, "files": 3}}


@pytest.mark.settings(**SECTIONS)
def test_the_document_lies_below_the_base_path_and_shows_the_limits_of_the_settings(app):
    client = app.test_client()
    said = client.get("/keep/openapi.json").get_json()
    assert said["servers"] == [{"url": "/keep"}]
    assert "/api/v1/chats" in said["paths"] and not [path for path in said["paths"] if path.startswith("/keep")]
    shapes = said["components"]["schemas"]
    assert shapes["DocumentIds"]["properties"]["document_ids"]["maxItems"] == 7
    assert shapes["Question"]["properties"]["question"]["maxLength"] == 70
    assert '"maxItems":3' in client.get("/keep/openapi.json").text
    assert client.get("/keep/docs").status_code == 200
    assert client.get("/openapi.json").status_code == 404


def test_the_pattern_of_a_visible_text_is_what_strip_leaves_in_each_dialect():
    each = [chr(code) for code in range(0x11000) if not 0xD800 <= code < 0xE000]
    schema = jsonschema_rs.validator_for({"type": "string", "pattern": VISIBLE})
    for told in (lambda text: re.search(VISIBLE, text) is not None, schema.is_valid):
        # ECMA counts U+FEFF as a space, Python doesn't.
        assert [hex(ord(one)) for one in each if told(one) != bool(one.strip())] in ([], ["0xfeff"])
