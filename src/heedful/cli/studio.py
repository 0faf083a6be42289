"""heed studio: a page for trained models and training runs, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.output import Checkpoint, Device, Json, print_json, print_message
from heedful.cli.serve import MAX_PORT, url_of
from heedful.errors import ConfigError

DEMO = Path("runs/demo")


def studio(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            help="Run folders. Default: runs/demo, the model of `heed demo`; without it, the tour and its training."
        ),
    ] = None,
    watch: Annotated[list[Path] | None, typer.Option(help="Folder whose training runs are shown, such as runs.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=MAX_PORT, help="Port; 0: any free one.")] = 5000,
    checkpoint: Checkpoint = None,
    device: Device = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")] = False,
    json: Json = False,
) -> None:
    """Open a page to use models, look inside them and follow their training.

    It is served by the server of `heed serve` and needs no network. Without a run, the page offers a recorded tour and trains
    the demo model. Ctrl-C ends it, and training is saved."""
    try:
        from heedful.serving.demo_training import DemoTraining
        from heedful.serving.limits import Limits
        from heedful.serving.served import Loading, Served
        from heedful.serving.server import Access, listen, make_service
        from heedful.serving.server import serve as serve_forever
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"heed studio needs {error.name}, which is not installed", hint="pip install 'heedful[serve]'"
        ) from error
    for folder in watch or []:
        if not folder.is_dir():
            raise ConfigError(f"--watch: given {str(folder)!r}, expected a folder of runs")
    trained = any((DEMO / "checkpoints").glob("step-*"))
    chosen = runs or ([str(DEMO)] if trained else [])
    if not chosen:
        print_message(f"There is no model in {DEMO}: the page opens with the tour, a recorded model, and can train one.")
    access = Access(host, port)
    with listen(access) as listener:
        loading, limits = Loading(checkpoint, device, in_process=False), Limits()  # for one person, a thread is enough
        service = make_service(chosen, loading, limits, access, None)
        service.watched = watch or []
        if not chosen:
            service.demo = DemoTraining(DEMO, lambda: Served(DEMO, None, loading, limits, service.metrics), service.add)
            service.watched = [*service.watched, DEMO]
        url = url_of(listener)

        def report() -> None:
            if json:
                print_json({"url": url, "models": [served.describe() for served in service.models]})
            else:
                print_message(f"studio: {url}, Ctrl-C stops")
            if not no_browser:
                typer.launch(url)

        try:
            serve_forever(service, listener, report)
        finally:
            if service.demo is not None:
                service.demo.close()
