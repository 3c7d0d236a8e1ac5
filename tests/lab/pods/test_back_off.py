"""The kubelet's crash loop."""

from umbilical.lab.pods.back_off import BackOff


def test_the_first_restart_comes_at_once_and_later_ones_after_twice_the_time() -> None:
    back_off = BackOff()
    assert [back_off.ended_after(1.0) for _ in range(8)] == [0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]


def test_who_ran_for_ten_minutes_begins_anew() -> None:
    back_off = BackOff()
    for _ in range(5):
        back_off.ended_after(1.0)
    assert [back_off.ended_after(600.0), back_off.ended_after(1.0)] == [0.0, 10.0]


def test_the_whole_scale_can_be_made_shorter() -> None:
    back_off = BackOff(0.1)
    assert [round(back_off.ended_after(0.0), 3) for _ in range(4)] == [0.0, 0.1, 0.2, 0.4]
