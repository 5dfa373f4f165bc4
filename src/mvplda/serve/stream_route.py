"""Endpoint of the WebSocket by which sound is streamed to verify a profile."""

from __future__ import annotations

from contextlib import suppress

from starlette.websockets import WebSocket, WebSocketDisconnect

from .access import STREAM_PROTOCOL, end_with_problem, problem_of
from .idempotency import IdempotentCall
from .policies import check_request, visible_decision
from .recordings import ProcessedRecording
from .routes import MAY_VERIFY, runtime_of
from .schemas import Problem, VerifyReply
from .streams import StreamedAttempt, StreamRequest, received_decision
from .verifier import Attempt

# Field of the query with the Idempotency-Key, for browsers, which cannot set headers.
KEY_FIELD = "idempotencyKey"
NO_SOUND = ProcessedRecording(None)


async def verify_stream(websocket: WebSocket, profile_id: str) -> None:
    """Verify the claim to be the owner of a profile by streamed sound, PCM in binary messages.

    A refusal is sent to the client as a problem, see `end_with_problem`; if the client breaks off the stream, nothing
    is sent.
    """
    try:
        await _verify(websocket, profile_id)
    except WebSocketDisconnect:
        return
    except Exception as error:
        problem = problem_of(error)
        with suppress(WebSocketDisconnect, RuntimeError):
            await end_with_problem(websocket, problem)


async def accept(websocket: WebSocket) -> None:
    """Accept the handshake of a WebSocket.

    Later refusals are sent as messages, because browsers hide the HTTP answer to a refused handshake.
    """
    protocol = STREAM_PROTOCOL if STREAM_PROTOCOL in websocket.scope["subprotocols"] else None
    await websocket.accept(protocol)


async def refuse_stream(websocket: WebSocket, path: str) -> None:
    """Refuse (404) a WebSocket whose path is not that of a stream."""
    await end_with_problem(
        websocket,
        Problem(404, "not-found", "no stream has this path: connect to /v1/profiles/ID/stream"),
    )


async def _verify(websocket: WebSocket, profile_id: str) -> None:
    """Check the request, read the stream, and send the decision; raise a `Problem` for a refusal."""
    exchange = websocket.scope["exchange"]
    caller = await MAY_VERIFY(websocket)  # type: ignore[arg-type]
    app = runtime_of(websocket)
    app.check_role("verify")
    await accept(websocket)
    query = dict(websocket.query_params)
    key = websocket.headers.get("Idempotency-Key", query.pop(KEY_FIELD, None))
    fields = StreamRequest.model_validate(query)
    request = fields.verification()
    if "countermeasure" in (app.settings.require, caller.policy.require):
        detail = "a stream has no countermeasureLlr: send its recording to POST verify"
        raise Problem(403, "policy", detail, required="countermeasure")
    check_request(caller, request, app.service.usual_far(), app.settings.require)
    call = None
    if key is not None:
        # the sound is not part of it: a repeated call has the decision of the first one
        content = (websocket.url.path, repr(sorted(query.items())))
        texts = (text.encode() for text in content)
        call = IdempotentCall.of(caller, key, *texts, profile=profile_id)
    with app.service.idempotency.in_progress(call):
        stored = None if call is None else await app.run(app.service.stored_answer, call)
        if isinstance(stored, Problem):
            raise stored
        if not isinstance(stored, VerifyReply):
            admitted = await app.change(
                caller, app.service.verifier.admit, profile_id, fields.challengeId
            )
            if isinstance(admitted, Problem):
                raise admitted
            attempt = Attempt(caller, profile_id, NO_SOUND, request, prompt=admitted, call=call)
            stream = StreamedAttempt(app, attempt, fields)
            with app.metrics.streams.track_inprogress():
                stored = await received_decision(websocket, stream)
    websocket.state.decision = stored.decision
    exchange.access.bodies.remove(exchange)
    visible = visible_decision(caller, stored).model_dump()
    await websocket.send_json({"type": "decision", **visible})
    await websocket.close()
