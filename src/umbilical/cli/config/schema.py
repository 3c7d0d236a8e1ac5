"""`umbilical config schema`: the JSON Schema of a cluster's file, for editors."""

import json

import click


@click.command()
def schema() -> None:
    """Print the JSON Schema of cluster.yaml.

    Editors with a YAML language server take it by a first line:
    # yaml-language-server: $schema=cluster.schema.json
    """
    from umbilical.hardway.config.schema import schema as made

    click.echo(json.dumps(made(), indent=2))
