from kai.cluster.transport.kubeconfig import Context, read_contexts

FIRST = """
current-context: prod
contexts:
- {name: prod, context: {cluster: c, user: u, namespace: ml}}
"""
SECOND = """
current-context: other
contexts:
- {name: prod, context: {cluster: d, namespace: other}}
- {name: staging, context: {cluster: c}}
- nonsense
"""


def test_the_first_file_that_names_a_context_counts(tmp_path):
    (tmp_path / "a").write_text(FIRST)
    (tmp_path / "b").write_text(SECOND)
    found = read_contexts(f"{tmp_path}/a:{tmp_path}/b:{tmp_path}/missing")
    assert found.current == "prod"
    assert [each.name for each in found.known] == ["prod", "staging"]
    assert found.find() == Context(name="prod", namespace="ml")
    assert found.find("staging") == Context(name="staging")
    assert found.find("none") == Context(name="none")


def test_files_that_cannot_be_read_have_no_contexts(tmp_path):
    (tmp_path / "a").write_text("{")
    (tmp_path / "b").write_text("contexts: 3")
    assert read_contexts(f"{tmp_path}/a:{tmp_path}/b").known == ()
    assert read_contexts("").current == ""
