import bench_agents


def test_the_agents_of_a_process_differ_by_their_ids_alone() -> None:
    flags = ["--ca-cert=/ca.crt", "--proxy-server-port=22", "--health-server-port=0"]
    one, two = bench_agents.settings_of(2, "crowd", flags)
    assert (one.agent_id, two.agent_id) == ("crowd-0", "crowd-1")
    assert one.tls == two.tls
    assert one.health_listen.port == 0
