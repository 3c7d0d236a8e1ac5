"""The texts of several processes, as one: what is summed, what is not, and what stays of a process that ended."""

from umbilical.tunnel.exposition import Exposition, Histogram
from umbilical.tunnel.merged_metrics import growing, merge, parse, render


def _text(dials: int, agents: int, seconds: list[float]) -> str:
    out = Exposition()
    out.counter("dials_total", "Dials.", ("reason",), {('of "x" y',): dials, ("only here",): 1} if dials > 1 else {})
    out.gauge("konnectivity_network_proxy_server_ready_backends", "Agents.", ("s",), {("default",): agents})
    out.single_gauge("open", "Open.", agents)
    out.single_gauge("process_start_time_seconds", "Start.", 100.5 + agents)
    histogram = Histogram((0.1, 1.0))
    for value in seconds:
        histogram.observe(value)
    out.histogram("wait_seconds", "Wait.", (), {(): histogram})
    return out.render().decode()


def test_one_process_alone_is_written_as_it_was_read() -> None:
    text = _text(3, 2, [0.05, 0.5])
    assert render(parse(text)).decode() == text


def test_counters_and_histograms_are_summed_and_gauges_by_their_meaning() -> None:
    texts = [_text(3, 2, [0.05, 5.0]), _text(4, 1, [0.5]), _text(0, 0, [])]
    merged = render(merge([parse(text) for text in texts])).decode()
    assert 'dials_total{reason="of \\"x\\" y"} 7' in merged
    assert 'konnectivity_network_proxy_server_ready_backends{s="default"} 2' in merged
    assert "\nopen 3\n" in merged
    assert "process_start_time_seconds 100.5" in merged
    assert 'wait_seconds_bucket{le="0.1"} 1\nwait_seconds_bucket{le="1"} 2\nwait_seconds_bucket{le="+Inf"} 3' in merged
    assert "wait_seconds_sum 5.55\nwait_seconds_count 3" in merged


def test_of_a_process_that_ended_only_what_grows_stays() -> None:
    left = growing(parse(_text(3, 2, [0.05])))
    assert sorted(left) == ["dials_total", "wait_seconds"]


def test_a_line_break_of_another_alphabet_in_a_label_does_not_end_its_line() -> None:
    out = Exposition()
    out.counter("c", "C.", ("l",), {("a\x85b\u2028c",): 1})
    text = out.render().decode()
    assert render(parse(text)).decode() == text
