"""Interrupts end what can be given up, once, and never the cleaning up."""

import os
import signal
import threading

import pytest

from umbilical.host.interrupts import SIGNALS, Interrupts


def _send(number: signal.Signals = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_one_is_heard_and_no_other_disturbs_the_cleaning_up(number: signal.Signals) -> None:
    events: list[str] = []

    def work() -> None:
        with Interrupts() as interrupts:
            try:
                with interrupts.heard():
                    _send(number)
                    events.append("not reached")
            finally:
                _send(number)
                _send()
                events.append("cleaned")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert events == ["cleaned"]


def test_one_that_comes_before_is_remembered_until_somebody_hears() -> None:
    events: list[str] = []

    def work() -> None:
        with Interrupts() as interrupts:
            _send()
            events.append("made")
            with interrupts.heard():
                events.append("not reached")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert events == ["made"]


def test_one_that_comes_after_the_work_is_raised_when_all_is_clean() -> None:
    events: list[str] = []

    def work() -> None:
        with Interrupts() as interrupts:
            with interrupts.heard():
                events.append("worked")
            _send()
            events.append("cleaned")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert events == ["worked", "cleaned"]


def test_an_error_of_the_work_is_not_hidden_by_a_late_one() -> None:
    def work() -> None:
        with Interrupts() as interrupts:
            try:
                with interrupts.heard():
                    raise ValueError("work")
            finally:
                _send()

    with pytest.raises(ValueError, match="work"):
        work()


def test_handlers_are_given_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interrupts():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_thread_that_has_no_signals_just_works() -> None:
    done: list[bool] = []

    def work() -> None:
        with Interrupts() as interrupts, interrupts.heard():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=10)
    assert done == [True]
