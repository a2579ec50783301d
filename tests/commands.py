"""The commands of `parity`, those of plug-ins too."""

import click


def below(command):
    """Return the commands of a group by name; those of another command are none."""
    if not isinstance(command, click.Group):
        return {}
    context = click.Context(command)
    names = command.list_commands(context)
    return {name: command.get_command(context, name) for name in names}
