"""Few pictures of a story decide it."""

from tests.support.told_stories import AGENTS, broken_story, mended_story, whole_story

from umbilical.lab.moments import Turn, decisive
from umbilical.lab.story import Call, Story


def test_a_whole_story_turns_four_times() -> None:
    moments = decisive(whole_story())
    assert [moment.turn for moment in moments] == [Turn.WITHOUT, Turn.ALLOWED, Turn.DENIED, Turn.CUT]


def test_a_refused_call_that_lasts_while_the_tunnel_comes_up_is_no_fault() -> None:
    assert Turn.BROKEN not in [moment.turn for moment in decisive(whole_story())]


def test_a_moment_knows_its_time_its_step_and_the_fullest_picture() -> None:
    without, allowed, _, cut = decisive(whole_story())
    assert without.step is not None
    assert without.step.title == "without the tunnel the bootstrap kube-apiserver is blocked"
    assert without.step.started_seconds <= without.seconds <= without.step.started_seconds + without.step.seconds
    # The production call came later, and nothing else had changed until then.
    assert without.picture.production_call is Call.DENIED
    assert allowed.picture.agents == AGENTS
    assert cut.picture.production_call is Call.ALLOWED


def test_a_server_that_comes_back_was_broken_and_not_cut_off() -> None:
    turns = [moment.turn for moment in decisive(mended_story())]
    assert turns == [Turn.WITHOUT, Turn.ALLOWED, Turn.DENIED, Turn.BROKEN, Turn.ALLOWED]


def test_a_server_that_stays_while_calls_fail_is_a_fault_too() -> None:
    story = Story("fault")
    story.shows(server=True, agents=AGENTS, call=Call.ALLOWED)
    story.shows(call=Call.UNREACHABLE)
    story.shows(call=Call.ALLOWED)
    assert [moment.turn for moment in decisive(story)] == [Turn.ALLOWED, Turn.BROKEN, Turn.ALLOWED]


def test_agents_that_leave_one_by_one_do_not_empty_the_picture() -> None:
    story = Story("teardown")
    story.shows(server=True, agents=AGENTS, call=Call.ALLOWED)
    story.shows(agents=AGENTS[:1])
    assert [moment.picture.agents for moment in decisive(story)] == [AGENTS]


def test_a_story_that_failed_early_has_what_it_came_to() -> None:
    assert [moment.turn for moment in decisive(broken_story(RuntimeError()))] == [Turn.WITHOUT]


def test_a_story_without_pictures_has_no_moments() -> None:
    assert decisive(Story("nothing")) == []
