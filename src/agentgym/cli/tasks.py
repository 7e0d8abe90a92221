"""`agentgym tasks`: check and import files of your own tasks."""

from __future__ import annotations

from typing import Annotated

import typer

from agentgym.cli.common import (
    Command,
    JsonOption,
    command_group,
    note,
    print_json,
    report,
)

app = command_group("Check and import files of tasks.")
importing = command_group("Make a tasks file from another format.")
app.add_typer(importing, name="import")

_SHOWN = 20


@app.command(cls=Command)
def check(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="File of tasks, one per line.")
    ],
    most: Annotated[
        int, typer.Option("--most", min=1, help="Stop after this many mistakes.")
    ] = 100,
    json: JsonOption = False,
) -> None:
    """List the mistakes in a tasks file with their lines. Runs none of its code."""
    from agentgym.scenarios.task_file.file import check_file

    report = check_file(file, most)
    wrong = report.mistakes
    if json:
        print_json(
            {
                "file": file,
                "ok": not wrong,
                "tasks": report.tasks,
                "tools": report.tools,
                "counts": report.counts,
                "heldout_tools_unseen": report.unseen,
                "stopped": report.stopped,
                "mistakes": [{"line": m.line, "text": m.text} for m in wrong],
            }
        )
    elif wrong:
        for mistake in wrong:
            print(f"{file}:{mistake.line}: {mistake.text}")
        more = ". The rest of the file was not checked" if report.stopped else ""
        mistakes = "1 mistake" if len(wrong) == 1 else f"{len(wrong):,} mistakes"
        print(f"\n{mistakes}{more}.")
    else:
        counts = ", ".join(f"{name} {n:,}" for name, n in report.counts.items() if n)
        print(f"{report.tasks:,} tasks with {report.tools:,} tools: {counts}.")
        if not report.unseen:
            print("Splits share tools, so held-out tasks don't measure unseen tools.")
        if report.code:
            print(
                f"Line {report.code[1]} runs Python code ({report.code[0]}). To train "
                "with this file, add --set allow_code=true."
            )
    if wrong:
        raise typer.Exit(1)


@importing.command(cls=Command)
def bfcl(
    questions: Annotated[
        str,
        typer.Argument(metavar="QUESTIONS", help="Questions, with their functions."),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="File to write.")
    ],
    answers: Annotated[
        str | None,
        typer.Option(
            "--answers",
            metavar="FILE",
            help="File of possible answers. Without it, no call is correct.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Import tasks of the Berkeley Function Calling Leaderboard."""
    from agentgym.scenarios.task_file.bfcl import import_bfcl

    count, left_out = import_bfcl(questions, answers, output)
    for reason in left_out[:_SHOWN]:
        note(f"skipped: {reason}")
    if len(left_out) > _SHOWN:
        note(f"skipped: {len(left_out) - _SHOWN:,} more")
    text = f"{count:,} tasks written to {output}, {len(left_out):,} skipped."
    report({"file": output, "tasks": count, "left_out": left_out}, text, json=json)
