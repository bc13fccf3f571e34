"""The `omnigraph` command: one module a command group, no logic of its own.

`main` builds the command and ends every error in `exits`; `options` and `output` are what all commands share. Modules
here import typer at the top and the engine inside the command, so that `omnigraph --help` stays fast.
"""
