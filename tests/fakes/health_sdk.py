"""The official SDK agents behind a token or TLS, as a program: `python health_sdk.py sdk13|sdk03 [options]`.

The agent itself is the one in the folder of that name. Prints `ready URL` (the agent's endpoint) and runs until
its standard input ends.
"""

from __future__ import annotations

import argparse
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn

Scope = dict[str, Any]


class TokenRequired:
    """Calls need the token; the card is public, as cards usually are."""

    def __init__(self, application: Callable[..., Awaitable[None]], token: str) -> None:
        self._application = application
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        refused = scope["type"] == "http" and scope["method"] == "POST"
        if refused and dict(scope["headers"]).get(b"authorization") != self._wanted:
            await send(
                {"type": "http.response.start", "status": 401, "headers": [(b"www-authenticate", b"Bearer")]}
            )
            await send({"type": "http.response.body", "body": b"unauthorized"})
            return
        await self._application(scope, receive, send)


def build_13(options: argparse.Namespace, base: str) -> tuple[Any, str]:
    import agent
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
    from a2a.server.tasks import InMemoryTaskStore
    from a2a.types import HTTPAuthSecurityScheme, SecurityRequirement, SecurityScheme, StringList
    from starlette.applications import Starlette

    shown = agent.card(options.elsewhere or base, only_v1=options.only_v1)
    if options.token:
        scheme = SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="bearer"))
        shown.security_schemes["bearer"].CopyFrom(scheme)
        shown.security_requirements.append(SecurityRequirement(schemes={"bearer": StringList()}))
    handler = DefaultRequestHandler(agent.Executor(), InMemoryTaskStore(), shown)
    calls = create_jsonrpc_routes(handler, agent.PATH, enable_v0_3_compat=not options.only_v1)
    return Starlette(routes=[*create_agent_card_routes(shown), *calls]), base + agent.PATH


def build_03(options: argparse.Namespace, base: str) -> tuple[Any, str]:
    import agent
    from a2a.server.apps import A2AStarletteApplication
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.tasks import InMemoryTaskStore
    from a2a.types import HTTPAuthSecurityScheme, SecurityScheme

    shown = agent.card(options.elsewhere or base)
    if options.token:
        shown.security_schemes = {"bearer": SecurityScheme(root=HTTPAuthSecurityScheme(scheme="bearer"))}
        shown.security = [{"bearer": []}]
    handler = DefaultRequestHandler(agent.Executor(), InMemoryTaskStore())
    return A2AStarletteApplication(agent_card=shown, http_handler=handler).build(), base + "/"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sdk", choices=("sdk13", "sdk03"))
    parser.add_argument("--only-v1", action="store_true")
    for name in ("token", "certificate", "key", "elsewhere"):
        parser.add_argument(f"--{name}")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent / options.sdk))
    listener = socket.create_server(("127.0.0.1", 0))
    scheme, host = ("https", "localhost") if options.certificate else ("http", "127.0.0.1")
    base = f"{scheme}://{host}:{listener.getsockname()[1]}"
    application, endpoint = (build_13 if options.sdk == "sdk13" else build_03)(options, base)
    if options.token:
        application = TokenRequired(application, options.token)
    config = uvicorn.Config(
        application, log_level="error", ssl_certfile=options.certificate, ssl_keyfile=options.key
    )
    server = uvicorn.Server(config)
    server.config.timeout_graceful_shutdown = 1

    def stop_with_stdin() -> None:
        sys.stdin.buffer.read()
        server.should_exit = True

    threading.Thread(target=stop_with_stdin, daemon=True).start()
    print(f"ready {endpoint}", flush=True)
    server.run(sockets=[listener])


if __name__ == "__main__":
    main()
