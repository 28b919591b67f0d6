"""A memory service in the shape of Mem0's own REST server, as somebody would have it running: it knows
nothing of hymem. `app` is for uvicorn, `wsgi` for gunicorn, and run as a script it is a conversation.

The default configuration comes from the environment, `POST /configure` is merged into it, and each
process has a store of its own, since Qdrant's local mode lets one in at a time.
"""

import json
import os
import sys
from urllib.parse import parse_qsl

from mem0 import Memory

DEFAULT = json.loads(os.environ["MEMORY_CONFIG"])
OF_2 = "get_update_memory_messages" not in vars(sys.modules["mem0.memory.main"])


def merged(default, given):
    if not isinstance(default, dict) or not isinstance(given, dict):
        return given
    return {**default, **{key: merged(default.get(key), value) for key, value in given.items()}}


def opened(config):
    store = config["vector_store"]["config"]
    opened.count += 1
    place = f"{store['path']}-{os.getpid()}-{opened.count}"
    return Memory.from_config(
        {**config, "vector_store": {**config["vector_store"], "config": {**store, "path": place}}}
    )


opened.count = 0
memory = opened(DEFAULT)


def all_of(user):
    found = memory.get_all(filters={"user_id": user}) if OF_2 else memory.get_all(user_id=user)
    return sorted(each["memory"] for each in found["results"])


def handle(method, path, query, body):
    global memory
    try:
        if (method, path) == ("POST", "/configure"):
            memory = opened(merged(DEFAULT, json.loads(body)))
            return 200, {"message": "configured"}
        if (method, path) == ("POST", "/memories"):
            given = json.loads(body)
            return 200, {"added": memory.add(given["messages"], user_id=given["user_id"]), "pid": os.getpid()}
        if (method, path) == ("GET", "/memories"):
            return 200, {"memories": all_of(query["user_id"]), "pid": os.getpid()}
        if (method, path) == ("POST", "/answer"):
            question = [{"role": "user", "content": json.loads(body)["question"]}]
            return 200, {"answer": memory.llm.generate_response(question)}
    except Exception as error:
        return 500, {"detail": f"{type(error).__name__}: {error}"}
    return 404, {"detail": "Not Found"}


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        event = await receive()
        body, more = body + event.get("body", b""), event.get("more_body")
    query = dict(parse_qsl(scope["query_string"].decode()))
    status, answer = handle(scope["method"], scope["path"], query, body)
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


def wsgi(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    query = dict(parse_qsl(environ.get("QUERY_STRING", "")))
    status, answer = handle(environ["REQUEST_METHOD"], environ["PATH_INFO"], query, body)
    start_response(f"{status} .", [("content-type", "application/json")])
    return [json.dumps(answer).encode()]


def main():
    """Remember what the arguments that are no options say, and print what is remembered."""
    for said in (each for each in sys.argv[1:] if not each.startswith("-")):
        memory.add([{"role": "user", "content": said}], user_id="ann")
    print(json.dumps({"memories": all_of("ann"), "argv": sys.argv, "path": sys.path[0], "name": __name__}))


if __name__ == "__main__":
    main()
