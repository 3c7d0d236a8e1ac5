"""The corpus that fuzzing starts from, made with our own encoders; `python -m tests.fuzz.seeds` writes it.

Files whose name starts with `found-` are inputs that fuzzing found; they stay.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from hpack import Encoder
from tests.fuzz.targets import connect_heads, header_blocks, http2, session, socks5, tunnel_frames
from tests.wire.http2.ends import (
    BLOCK,
    HEADERS,
    REQUEST,
    Ours,
    Theirs,
    frame,
    greeting,
    open_stream,
    pump,
    settings_frame,
    split,
    window_update,
)

from umbilical.wire import grpc, http1, packets
from umbilical.wire.http2 import frames
from umbilical.wire.http2.headers import encode_headers
from umbilical.wire.packet_data import DataPrefix

CORPUS: Final = Path(__file__).parent / "corpus"
FOUND: Final = "found-"
Seeds = dict[str, bytes]


def conversation() -> tuple[bytes, bytes]:
    """What our client and our server send in a lively conversation."""
    said = {True: b"", False: b""}

    class Recording(Ours):
        def take(self, limit: int = 1 << 30) -> bytes:
            octets = super().take(limit)
            said[self is client] += octets
            return octets

    client, server = Recording(True), Recording(False)
    for number in range(3):
        stream, answer = open_stream(client, server)
        client.write(stream, DataPrefix(stream.stream_id, 1), b"payload")
        server.connection.sender.send_headers(answer, grpc.RESPONSE_HEADERS)
        server.connection.sender.send_message(answer, b"answer")
        client.connection.sender.ping(bytes(8))
        pump(client, server)
        if number == 1:
            client.connection.sender.reset(stream, frames.CANCEL)
        else:
            server.connection.sender.finish(answer, grpc.trailers(grpc.OK, "done"))
            client.connection.sender.close_sending(stream)
        pump(client, server)
    server.connection.sender.goaway(frames.NO_ERROR, "bye")
    pump(client, server)
    return said[True], said[False]


def foreign_conversation() -> bytes:
    """What a client sends that uses a header table, padding and priorities, which ours never does."""
    client, server = Theirs(True), Ours(False)
    said = client.take()
    server.give(said)
    for stream_id in (1, 3, 5):
        client.give(server.take())
        client.http2.send_headers(stream_id, REQUEST, priority_weight=7, priority_exclusive=True)
        client.http2.send_data(stream_id, b"payload", pad_length=stream_id)
        client.http2.ping(bytes(8))
        client.http2.increment_flow_control_window(1_000, stream_id)
        if stream_id == 3:
            client.http2.reset_stream(stream_id)
        octets = client.take()
        said += octets
        server.give(octets)
    assert server.connection.sender.failure is None
    return said


def _http2() -> Seeds:
    client, server = conversation()
    greeted, answers = http2.GREETED, http2.ANSWERS
    message = grpc.message_prefix(3) + b"abc"
    half = frame(frames.HEADERS, 0, 3, BLOCK[:9])
    one_frame = {
        "data": frame(frames.DATA, 0, 1, message),
        "data-end": frame(frames.DATA, frames.END_STREAM, 1, message),
        "data-padded": frame(frames.DATA, frames.PADDED, 1, b"\x02abc\x00\x00"),
        "headers": frame(frames.HEADERS, frames.END_HEADERS, 3, BLOCK),
        "continuation": half + frame(frames.CONTINUATION, frames.END_HEADERS, 3, BLOCK[9:]),
        "trailers": frame(
            frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, encode_headers(grpc.trailers(0, "x"))
        ),
        "priority": frame(frames.PRIORITY, 0, 1, bytes(5)),
        "reset": frame(frames.RST_STREAM, 0, 1, b"\0\0\0\x08"),
        "ping": frame(frames.PING, 0, 0, b"8 bytes!"),
        "goaway": frame(frames.GOAWAY, 0, 0, bytes(8) + b"bye"),
        "window": window_update(0, 1000) + window_update(1, 1000),
        "settings": settings_frame([(number, 16_384) for number in range(1, 7)]),
        "small-window": settings_frame([(frames.INITIAL_WINDOW_SIZE, 3)]) + frame(frames.DATA, 0, 1, message),
        "unknown": frame(0x20, 0xFF, 7, b"?"),
    }
    seeds = {
        "server": bytes((0, 40)) + client,
        "server-answers": bytes((answers, 200)) + client,
        "server-foreign": bytes((answers, 30)) + foreign_conversation(),
        "client": bytes((1, 40)) + server,
        "client-answers": bytes((1 | answers, 90)) + server,
        "greeting": bytes((0, 1)) + greeting() + HEADERS,
    }
    for name, octets in one_frame.items():
        steps = b"".join(
            [bytes((one.kind, one.flags, one.stream_id, len(one.payload))) + one.payload for one in split(octets)]
        )
        seeds[f"server-{name}"] = bytes((greeted | answers | http2.FRAMES, 5)) + steps
        seeds[f"client-{name}"] = bytes((greeted | 1 | http2.FRAMES, 5)) + steps
    return seeds


def _blocks(*blocks: bytes) -> bytes:
    return b"".join([bytes((len(block),)) + block for block in blocks])


def _header_blocks() -> Seeds:
    encoder = Encoder()
    calls = [encoder.encode(REQUEST, huffman=huffman) for huffman in (True, False, True, True)]
    other = encoder.encode([(b"agentid", b"a"), (b"authorization", b"Bearer token"), (b"te", b"trailers")])
    encoder.header_table_size = 64
    small = [encoder.encode([(b"x-%d" % number, b"value")]) for number in range(3)]
    insert = b"\x40\x01a\x01b"
    given = {
        "plain": _blocks(encode_headers(REQUEST), encode_headers(grpc.trailers(5, "text"))),
        "calls": _blocks(*calls),
        "other": _blocks(calls[0], other),
        "small-table": _blocks(calls[0], other, *small),
        "insert-and-refer": _blocks(insert, b"\xbe", b"\xbe\xbe"),
        "size-update": _blocks(b"\x20", b"\x3f\xe1\x1f" + insert),
        "integers": _blocks(b"\x0f\x2f\x01x", b"\x7f\x00\x01x", b"\x1f\x00\x01x"),
        "huffman": _blocks(b"\x00\x81\x1f\x81\x07"),
    }
    add, done = header_blocks.INSERT, header_blocks.END_BLOCK
    refer, resize = header_blocks.REFER, header_blocks.RESIZE
    built = {
        "built-table": (add, add | 4, done, refer, refer | 4, done, add | 8),
        "built-small-table": (resize | 8, add, done, add | 4, done, refer),
        "built-emptied": (add, done, resize, done, resize | 16, done, add),
    }
    seeds = {name: b"\x00" + blocks for name, blocks in given.items()}
    return seeds | {name: bytes((header_blocks.STEPS, *steps)) for name, steps in built.items()}


def _packets() -> Seeds:
    return {
        "dial": packets.encode_dial_request("tcp", "127.0.0.1:443", 7),
        "dial-response": packets.encode_dial_response("", 300, -1),
        "dial-refused": packets.encode_dial_response("no route", 0, 1 << 40),
        "close": packets.encode_close_request(3),
        "close-response": packets.encode_close_response("reset", 3),
        "close-dial": packets.encode_close_dial(9),
        "data": packets.encode_data(5, b"payload"),
        "data-long": packets.encode_data(300, bytes(130)),
        "data-as-sent": DataPrefix(1, 300).for_length(4)[frames.FRAME_HEADER_BYTES + grpc.PREFIX_BYTES :] + b"four",
        "drain": packets.encode_drain(),
        "pause": packets.encode_pause(4),
        "resume": packets.encode_resume(400),
        "unknown": b"\x08\x20\x7b\x08\x01\x7c\x1d\0\0\0\0\x19" + bytes(8),
    }


def _messages() -> Seeds:
    stream = b"".join([grpc.message_prefix(size) + bytes(size) for size in (0, 1, 5, 300)])
    return {
        "stream": b"\x04" + stream,
        "one": b"\x01" + grpc.message_prefix(4) + b"four",
        "compressed": b"\x03\x01\0\0\0\x01x",
        "too-large": b"\x03\x00\x7f\0\0\0x",
        "text": b"\x01" + grpc.encode_status_message("100 % wrong: \u00e4\n"),
        "status": b"\x0114",
    }


def _tunnel_frames() -> Seeds:
    every = b"".join([grpc.message_prefix(len(packet)) + packet for packet in _packets().values()])
    sent = tunnel_frames.SENT
    return {
        "packets": bytes((0, 7)) + every,
        "packet": bytes((0, 200)) + grpc.message_prefix(11) + packets.encode_data(5, b"abc"),
        "malformed": bytes((0, 3)) + grpc.message_prefix(2) + b"\x08\x80",
        "sent": bytes((sent, 20)) + b"payload of a tunnel, in packets",
        "sent-plain": bytes((sent | tunnel_frames.PLAIN, 20)) + b"payload of a tunnel, in plain frames",
    }


def _connect_heads() -> Seeds:
    headers = [("Proxy-Authorization", "Basic eA=="), ("Umbilical-Trace", "1"), ("Connection", "close")]
    requests = {
        "connect": http1.format_connect_request("127.0.0.1:443", headers) + b"early",
        "name": http1.format_connect_request("webhook.default.svc:443"),
        "ipv6": http1.format_connect_request("[fe80::1%25eth0]:80"),
        "bare": b"CONNECT user@host:1/path?x HTTP/1.0\nHost: h\n continued\n\n",
        "get": b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 0012\r\nConnection: keep-alive\r\n\r\n",
        "chunked": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "preface": frames.PREFACE,
        "version": b"CONNECT h:1 HTTP/3.0\r\n\r\n",
    }
    replies = {
        "established": http1.CONNECTION_ESTABLISHED + b"payload",
        "traced": http1.traced(http1.CONNECTION_ESTABLISHED, [("Umbilical-Agent", "a")]),
        "forbidden": http1.forbidden_reply("no"),
    }
    seeds = {name: bytes((0, 9)) + octets for name, octets in requests.items()}
    return seeds | {name: bytes((connect_heads.REPLY, 9)) + octets for name, octets in replies.items()}


def _socks5() -> Seeds:
    greeted, password = b"\x05\x01\x00", b"\x05\x02\x00\x02\x01\x04user\x04pass"
    name = b"\x05\x01\x00\x03\x04host\x01\xbb"
    return {
        "name": bytes((0, 3)) + greeted + name + b"early",
        "ipv4": bytes((0, 1)) + greeted + b"\x05\x01\x00\x01\x7f\0\0\x01\x00\x50",
        "ipv6": bytes((0, 50)) + greeted + b"\x05\x01\x00\x04" + bytes(15) + b"\x01\x00\x50",
        "mapped": bytes((0, 50)) + bytes(10) + b"\xff\xff\x7f\0\0\x01",
        "password": bytes((socks5.PASSWORD_NEEDED, 4)) + password + name,
        "wrong-password": bytes((socks5.PASSWORD_NEEDED | socks5.PASSWORD_WRONG, 4)) + password + name,
        "bind": bytes((0, 4)) + greeted + b"\x05\x02\x00\x01" + bytes(6),
        "older": bytes((0, 4)) + b"\x04\x01\x00\x50\x7f\0\0\x01\x00",
    }


def _session() -> Seeds:
    agent, shared, stranger = session.AGENT, session.SHARED_AGENT, session.STRANGER
    grpc_client, client, second = session.GRPC_CLIENT, session.CONNECT_CLIENT, session.SECOND_CLIENT
    raw, frame_, packet, dial, answer = session.RAW, session.FRAME, session.PACKET, session.DIAL, session.ANSWER
    data, close, end, leave, read = session.DATA, session.CLOSE, session.END, session.LEAVE, session.READ
    bulk, wait = session.BULK, session.WAIT
    own = _steps((read, agent), (dial, client, 80), (answer, agent, 0), (read, client))
    own_grpc = _steps((read, agent), (dial, grpc_client, 80), (answer, agent, 0), (read, grpc_client))
    carried = _steps((read, shared), (dial, grpc_client, 80), (answer, shared, 5), (read, grpc_client))
    carried_connect = _steps((read, shared), (dial, client, 80), (answer, shared, 5), (read, client))
    payload = (3, *b"abc")
    drain = packets.encode_drain()
    pause = packets.encode_pause(5)
    return {
        "own-stream": own
        + _steps((data, client, 0, *payload), (data, agent, 3, *payload), (end, client), (leave, client)),
        "own-stream-ended": own + _steps((frame_, agent, frames.DATA, frames.END_STREAM, 3, *payload), (end, client)),
        "own-stream-reset": own + _steps((frame_, agent, frames.RST_STREAM, 0, 3, 4, 0, 0, 0, 8)),
        "own-stream-grpc": own_grpc
        + _steps((data, grpc_client, 3, *payload), (data, agent, 3, *payload), (close, grpc_client, 3)),
        "shared-stream": carried
        + _steps(
            (data, grpc_client, 5, *payload), (data, shared, 5, *payload), (close, grpc_client, 5), (close, shared, 5)
        ),
        "shared-connect": carried_connect
        + _steps((data, client, 0, *payload), (data, shared, 5, *payload), (close, shared, 5)),
        "foreign-connection": carried + _steps((data, grpc_client, 6, *payload), (close, grpc_client, 6)),
        "agent-lost": own + carried + _steps((leave, agent), (dial, second, 80), (leave, shared)),
        "redial": _steps((read, agent), (read, shared), (dial, client, 80), (leave, agent), (answer, shared, 5)),
        "same-turn": own + _steps((data | session.SAME_TURN, agent, 3, *payload), (leave, agent)),
        "drain": _steps((packet, shared, len(drain), *drain, 1), (dial, client, 80), (leave, client)),
        "pause": carried_connect + _steps((packet, shared, len(pause), *pause, 1), (data, client, 0, *payload)),
        "slow-reader": carried_connect
        + _steps((bulk, shared, 5, 15), (bulk, shared, 5, 15), (wait, shared, 24), (read, client)),
        "slow-agent": own + _steps((bulk, client, 0, 15), (bulk, client, 0, 15), (read, agent), (wait, agent, 8)),
        "slow-grpc": own_grpc + _steps((bulk, agent, 3, 15), (wait, agent, 200), (read, grpc_client)),
        "dial-times-out": _steps(
            (read, agent), (dial, client, 80), (wait, agent, 130), (wait, agent, 130), (read, client)
        ),
        "no-agent": _steps((dial, client, 80), (dial, grpc_client, 80)),
        "stray": _steps((data, shared, 9, *payload), (close, shared, 9), (answer, shared, 9)),
        "cancelled": _steps((frame_, grpc_client, frames.RST_STREAM, 0, 1, 4, 0, 0, 0, 8)),
        "goaway": own + _steps((frame_, agent, frames.GOAWAY, 0, 0, 8, *bytes(8))),
        "head": _steps(
            (raw, client, 4, *b"GET "), (raw, client, 20, *b"/ HTTP/1.0\r\nHost: h\n"), (raw, client, 1, 10)
        ),
        "stranger": _steps((raw, stranger, 24, *frames.PREFACE), (frame_, stranger, frames.SETTINGS, 0, 0, 0)),
    }


def _steps(*steps: Iterable[int]) -> bytes:
    return b"".join(map(bytes, steps))


def seeds() -> Iterator[tuple[Path, bytes]]:
    """Return the files of the corpus, below CORPUS."""
    made = {
        "connect_heads": _connect_heads(),
        "header_blocks": _header_blocks(),
        "http2": _http2(),
        "messages": _messages(),
        "packets": _packets(),
        "session": _session(),
        "socks5": _socks5(),
        "tunnel_frames": _tunnel_frames(),
    }
    for target, files in made.items():
        for name, octets in files.items():
            yield CORPUS / target / name, octets


def write() -> None:
    for old in CORPUS.glob("*/*"):
        if not old.name.startswith(FOUND):
            old.unlink()
    for path, octets in seeds():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(octets)


if __name__ == "__main__":
    write()
