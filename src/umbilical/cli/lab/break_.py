"""`umbilical lab break`: make one fault in a lab, show what a user would see, and by which line it is recognised."""

from pathlib import Path

import click

from umbilical.cli.lab.options import chosen_directory, lab_options


@click.command(name="break")
@click.argument("fault_name", metavar="FAULT")
@lab_options
def break_(fault_name: str, name: str, directory: Path | None) -> None:
    """Break one thing in a lab whose tunnel is up; `umbilical lab list` names what can be broken."""
    from umbilical.cli.lab.story_view import choose_view
    from umbilical.lab.faults import registry
    from umbilical.lab.faults.repair import check, tell_break
    from umbilical.lab.lab import Lab
    from umbilical.lab.rehearsal import load_scene
    from umbilical.lab.story import Story

    fault = registry.find(fault_name)
    lab = Lab.open(chosen_directory(name, directory))
    title = f"A fault: {fault.name}"
    scene = load_scene(lab, Story(title))
    check(scene, fault)
    with choose_view(title, is_stand_in=scene.cast.is_stand_in) as teller:
        tell_break(load_scene(lab, Story(title, teller)), fault)
    where = f"--dir {directory}" if directory is not None else f"--name {name}"
    click.echo(f"\nmend it with: umbilical lab mend {where} {fault.name}")
