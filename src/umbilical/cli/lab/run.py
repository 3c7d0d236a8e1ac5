"""`umbilical lab run`: tell one scenario, in a lab made for it or in one that is up."""

from pathlib import Path

import click

from umbilical.cli.lab.options import DIRECTORY, bin_dir_option


@click.command()
@click.argument("name")
@click.option("--runner", type=click.Choice(["process", "kubelet"]), help="Who runs pods; the scenario decides.")
@click.option("--keep", is_flag=True, help="Stop before the cut and leave the lab up, for `lab shell` and `lab break`.")
@click.option("--name", "lab_name", default="lab", show_default=True, help="Of the lab: one that is up is used.")
@click.option("--dir", "directory", type=DIRECTORY, help="Where the lab lies, in place of --name.")
@click.option("--stand-in", is_flag=True, help="Without Kubernetes: a caller of ours in kube-apiserver's place.")
@bin_dir_option
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write the story as one HTML file.")
def run(
    name: str,
    runner: str | None,
    keep: bool,
    lab_name: str,
    directory: Path | None,
    stand_in: bool,
    bin_dir: Path | None,
    report: Path | None,
) -> None:
    """Tell the scenario NAME step by step; `umbilical lab list` names them all."""
    from umbilical.cli.lab import telling
    from umbilical.lab.rehearsal import Rehearsal
    from umbilical.lab.scenarios import scenario as registry
    from umbilical.lab.state import LabDirectory, RunnerKind, default_directory, read_state

    scenario = registry.find(name)
    report = report and telling.check_report(report)
    place = directory or default_directory(lab_name)
    is_up = (state := read_state(LabDirectory(place))) is not None and state.is_alive()
    rehearsal = Rehearsal(
        scenario,
        RunnerKind(runner) if runner else scenario.runners[0],
        stand_in=stand_in,
        keep=keep,
        directory=place if keep or is_up or directory else None,
        name=lab_name,
        bin_dir=bin_dir,
    )
    story, lab = telling.tell(rehearsal, scenario.name, report)
    telling.close(story, report and telling.write(story, report, is_stand_in=rehearsal.stand_in))
    if lab is not None:
        where = f"--dir {directory}" if directory else f"--name {lab_name}"
        is_cut = scenario.end is not None and not keep
        telling.tell_kept(where, has_tunnel=lab.directory.scene_file.exists() and not is_cut)
