import json

import pytest
from tests.support.bench_samples import CONDITIONS, DOWNLOAD, ECHO, both, rate

import bench_report
from bench_report import BEGIN, END
from bench_rows import OURS, UPSTREAM, Results


def test_a_generator_as_costly_as_upstreams_tunnel_is_marked() -> None:
    results = Results()
    results.add(ECHO, UPSTREAM, 1, rate(100.0, cost=10.0, generator=9.9))
    results.add(ECHO, OURS, 1, rate(100.0, cost=3.0, generator=10.0))
    assert "10.0!" in bench_report.text(results, CONDITIONS)
    assert any(note.startswith("! the generator") for note in bench_report.remarks(results))


def test_the_report_closes_with_how_many_bars_were_met() -> None:
    results = both([100.0], [160.0])
    results.fail([DOWNLOAD], OURS, 1, "it broke")
    # The rate is met; the cost of ours is upstream's, which is too much; the mixed pairs were not measured.
    assert bench_report.remarks(results)[-1] == "1 of 2 bars met"
    assert bench_report.text(results, CONDITIONS).endswith("* 1 of 2 bars met\n")


def test_without_anything_to_judge_there_is_no_sum() -> None:
    assert bench_report.remarks(Results()) == []


def test_a_busy_machine_is_named() -> None:
    results = Results()
    results.add(ECHO, UPSTREAM, 1, rate(100.0, others=0.7))
    assert bench_report.remarks(results) == [
        "the machine was not quiet; cores used by others: http-connect echo 16 0.70"
    ]


def test_the_text_table_is_aligned_and_leaves_out_what_was_not_measured() -> None:
    shown = bench_report.text(both([100.0], [150.0]), CONDITIONS)
    header, rule, line = next(
        lines for lines in zip(*[shown.splitlines()[i:] for i in range(3)], strict=False) if lines[1].startswith("---")
    )
    assert len(header) == len(rule) == len(line)
    assert line.split()[:7] == ["http-connect", "echo", "16", "100", "150", "/s", "1.50"]
    assert "Mixed pairs" not in shown
    assert "Memory" not in shown


def test_every_markdown_table_has_as_many_cells_in_each_line() -> None:
    shown = bench_report.markdown(both([100.0], [150.0], DOWNLOAD), CONDITIONS)
    tables = [block.splitlines() for block in shown.split("\n\n") if block.startswith("|")]
    assert len(tables) == 2
    assert all(len({line.count("|") for line in table}) == 1 for table in tables)
    assert tables[0][2].startswith("| http-connect download 8 | 100 | 150 | MB/s | 1.50 |")


def test_the_json_holds_medians_ratios_bars_and_every_sample() -> None:
    results = both([100.0, 110.0, 120.0], [220.0, 110.0, 330.0])
    results.fail([DOWNLOAD], OURS, 2, "it broke")
    document = json.loads(bench_report.as_json(results, CONDITIONS))
    ours = document["rows"]["http-connect echo 16"]["pairs"]["ours"]
    assert (ours["median"]["value"], ours["ratio"]["value"]) == (220.0, 2.0)
    assert [sample["round"] for sample in ours["samples"]] == [1, 2, 3]
    assert document["failures"] == [{"row": "http-connect download 8", "pair": "ours", "round": 2, "why": "it broke"}]
    assert document["bars"][0] == {
        "row": "http-connect echo 16",
        "pair": "ours",
        "measure": "rate",
        "measured": 2.0,
        "bar": ">= 1.5",
        "met": "yes",
    }


def test_tables_go_between_the_markers_and_the_rest_stays() -> None:
    first = bench_report.into(f"before\n{BEGIN}\n{END}\nafter\n", "one\n")
    assert first == f"before\n{BEGIN}\n\none\n\n{END}\nafter\n"
    assert bench_report.into(first, "two\n") == first.replace("one", "two")


@pytest.mark.parametrize(
    "document",
    ["", f"{BEGIN}\n", f"{END}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{BEGIN}\n{END}\n", f"{BEGIN}\n{END}\n{END}\n"],
)
def test_a_document_without_both_markers_is_refused(document: str) -> None:
    with pytest.raises(bench_report.NoMarkers):
        bench_report.into(document, "one\n")
