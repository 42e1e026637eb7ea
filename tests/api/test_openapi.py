"""The OpenAPI document follows the settings: base path, limits."""

import pytest

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
