"""`umbilical lab mend`: take faults back, the last first, and show that calls go through again."""

from pathlib import Path

import click

from umbilical.cli.lab.options import chosen_directory, lab_options


@click.command()
@click.argument("fault_name", metavar="[FAULT]", required=False)
@click.option("--all", "everything", is_flag=True, help="Mend all that is broken, which is also done without FAULT.")
@lab_options
def mend(fault_name: str | None, everything: bool, name: str, directory: Path | None) -> None:
    """Take back what `lab break` did: FAULT, or all of it."""
    from umbilical.cli.lab.story_view import choose_view
    from umbilical.lab.faults import registry
    from umbilical.lab.faults.repair import broken_faults, tell_mend
    from umbilical.lab.lab import Lab
    from umbilical.lab.rehearsal import load_scene
    from umbilical.lab.story import Story

    if fault_name is not None and everything:
        raise click.UsageError("give a fault or --all, not both")
    if fault_name is not None:
        registry.find(fault_name)
    lab = Lab.open(chosen_directory(name, directory))
    wanted = [fault_name] if fault_name is not None else broken_faults(lab)[::-1]
    if not wanted:
        click.echo("nothing is broken")
        return
    is_stand_in = load_scene(lab, Story("Mending")).cast.is_stand_in
    with choose_view("Mending", is_stand_in=is_stand_in) as teller:
        scene = load_scene(lab, Story("Mending", teller))
        for each in wanted:
            tell_mend(scene, each)
