"""heed serve: an HTTP server for trained models."""

from __future__ import annotations

from pathlib import Path
from socket import socket
from typing import Annotated

import typer

from heedful.cli.output import Checkpoint, Device, Json, Precision, Search, check_finite, print_json, print_message, print_text
from heedful.config.bounds import MAX_COUNT
from heedful.errors import ConfigError
from heedful.serving.limits import Limits

MAX_PORT, DAY = 65535, 86_400
LIMITS = Limits()


def serve(
    runs: Annotated[
        list[str] | None,
        typer.Argument(help="Run folders; runs/mine=en-de gives the languages where a run does not name them."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=MAX_PORT, help="Port; 0: any free one.")] = 5000,
    checkpoint: Checkpoint = None,
    device: Device = None,
    precision: Precision = "fp32",
    search: Search = None,
    model_process: Annotated[
        bool | None,
        typer.Option(
            "--model-process/--model-thread",
            help="Run each model in a process or in a thread of the server. Default: a process for models on a GPU.",
        ),
    ] = None,
    pivot: Annotated[str | None, typer.Option(help="Translate through this language where no model translates a pair.")] = None,
    api_keys: Annotated[Path | None, typer.Option(help="File of keys, as SHA-256. Default: no key is needed.")] = None,
    new_key: Annotated[bool, typer.Option("--new-key", help="Print a new key and its line for --api-keys, and exit.")] = False,
    allow_host: Annotated[list[str] | None, typer.Option(help="A further name of this server, as in the Host header.")] = None,
    cors: Annotated[list[str] | None, typer.Option(help="Origin of a web page that may use the server.")] = None,
    max_texts: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Texts of a request.")] = LIMITS.max_texts,
    max_characters: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Characters of a text.")] = LIMITS.max_characters,
    max_data: Annotated[
        int, typer.Option(min=1, max=MAX_COUNT, help="Characters of an image, a table, a graph or a history.")
    ] = LIMITS.max_data,
    max_body: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Bytes of a request.")] = LIMITS.max_body,
    max_tokens: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Tokens to generate for a text.")] = LIMITS.max_tokens,
    max_queue: Annotated[int, typer.Option(min=2, max=MAX_COUNT, help="Texts that wait for a model.")] = LIMITS.max_queue,
    max_running: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_COUNT, help="Texts that are decoded at a time. Default: 64, on a GPU 256."),
    ] = LIMITS.max_running,
    max_batch_tokens: Annotated[
        int, typer.Option(min=1, max=MAX_COUNT, help="Input tokens of a batch, for tasks without search.")
    ] = LIMITS.max_batch_tokens,
    max_wait_ms: Annotated[
        float,
        typer.Option(
            min=0, max=10_000, callback=check_finite, help="Milliseconds that a text waits for others to form a batch."
        ),
    ] = LIMITS.max_wait_ms,
    deadline: Annotated[
        float, typer.Option(min=0.1, max=DAY, callback=check_finite, help="Seconds to answer a request.")
    ] = LIMITS.deadline,
    grace: Annotated[
        float, typer.Option(min=0, max=DAY, callback=check_finite, help="Seconds to finish requests after SIGTERM.")
    ] = LIMITS.grace,
    json: Json = False,
) -> None:
    """Answer requests for predictions over HTTP: the APIs of LibreTranslate and OpenAI, and every task at /api/predict.

    SIGTERM or Ctrl-C finishes the accepted requests and ends the server."""
    if new_key:
        show_new_key(json)
        return
    if not runs:
        raise ConfigError("given no run folder, expected at least one", hint="heed serve runs/mine")
    try:
        from heedful.serving.security import check_origins, read_keys
        from heedful.serving.served import Loading
        from heedful.serving.server import Access, listen, make_service
        from heedful.serving.server import serve as serve_forever
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"heed serve needs {error.name}, which is not installed", hint="pip install 'heedful[serve]'"
        ) from error
    origins = cors or []
    check_origins(origins)
    keys = [] if api_keys is None else read_keys(api_keys)
    access = Access(host, port, allow_host or [], origins, keys)
    limits = Limits(
        max_texts=max_texts,
        max_characters=max_characters,
        max_data=max_data,
        max_body=max_body,
        max_tokens=max_tokens,
        max_queue=max_queue,
        max_running=max_running,
        max_batch_tokens=max_batch_tokens,
        max_wait_ms=max_wait_ms,
        deadline=deadline,
        grace=grace,
    )
    with listen(access) as listener:
        loading = Loading(checkpoint, device, precision, search or (), model_process)
        service = make_service(runs, loading, limits, access, pivot)
        url = url_of(listener)

        def report() -> None:
            if json:
                print_json({"url": url, "models": [served.describe() for served in service.models]})
                return
            for served in service.models:
                pair = "" if served.pair is None else f", {served.pair[0]} to {served.pair[1]}"
                print_message(f"{served.id}: {served.task}{pair}")
            print_message(f"listening on {url}, Ctrl-C stops")

        serve_forever(service, listener, report)


def url_of(listener: socket) -> str:
    address, number = listener.getsockname()[:2]
    return f"http://[{address}]:{number}" if ":" in address else f"http://{address}:{number}"


def show_new_key(json: bool) -> None:
    from heedful.serving.security import new_key

    key, line = new_key()
    if json:
        print_json({"key": key, "sha256": line})
        return
    print_text(f"key     {key}")
    print_text(f"sha256  {line}")
