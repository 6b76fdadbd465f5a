"""`ringline completion`."""

import click

from ringline.cli.output import write_text
from ringline.cli.page import command as page

__all__ = ["command"]


@page(
    "completion",
    examples=[
        (
            "bash, for this session; add the line to ~/.bashrc to keep it",
            'eval "$(ringline completion bash)"',
        ),
        ("zsh: add this line to ~/.zshrc", 'eval "$(ringline completion zsh)"'),
        ("fish", "ringline completion fish > ~/.config/fish/completions/ringline.fish"),
    ],
    exits=[(0, "printed"), (2, "no such shell")],
    then="type ringline, a space, and the TAB key",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script that completes `ringline` commands and options in a shell."""
    from click.shell_completion import get_completion_class

    completer = get_completion_class(shell)
    if completer is None:
        raise click.UsageError(f"click has no completion for {shell}")
    write_text(completer(context.find_root().command, {}, "ringline", "_RINGLINE_COMPLETE").source())
