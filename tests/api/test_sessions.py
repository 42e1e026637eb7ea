def test_a_session_begins_with_the_prologue(alice, session):
    [entry] = session["messages"]
    assert (entry["role"], entry["content"], entry["seq"]) == ("assistant", "Welcome.", 1)
    assert "id" not in entry
    assert session["reference"] == []
