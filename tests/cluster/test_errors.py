"""The shape of errors, and the remedy that fits the status."""

import pytest

from umbilical.cluster.errors import ApiRefused, ApiUnreachable, ClusterError


def test_an_error_is_three_lines_with_the_code_first() -> None:
    error = ClusterError("UMB601", "what", "because", "do this")
    assert str(error) == "UMB601 what\n  why: because\n  next: do this"
    assert error.brief == "UMB601 what: because"


def test_a_refusal_carries_status_reason_and_message() -> None:
    error = ApiRefused("GET /x", 409, "Conflict", "it changed")
    assert (error.status, error.reason, error.message, error.why) == (409, "Conflict", "it changed", "it changed")
    assert str(error).startswith("UMB604 GET /x: HTTP 409 Conflict\n")


@pytest.mark.parametrize(("status", "remedy"), [(401, "credentials"), (403, "grant"), (500, "log")])
def test_the_remedy_fits_the_status(status: int, remedy: str) -> None:
    assert remedy in ApiRefused("GET /x", status, "", "m").remedy


def test_an_api_that_does_not_answer_is_named_with_the_request() -> None:
    assert str(ApiUnreachable("GET /x", "refused")).startswith("UMB603 GET /x: the Kubernetes API does not answer")
