"""Slack's own libraries for Python against the fake Slack of the tests.

It is given the address of the methods and a signed request; a player on our side is the person who
talks to it.
"""

import json
import sys
import threading
import urllib.request

from judge_kit import run_check
from slack_bolt import App
from slack_bolt.adapter.socket_mode import SocketModeHandler
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_handlers import RateLimitErrorRetryHandler
from slack_sdk.signature import SignatureVerifier

GIVEN = json.loads(sys.argv[1])
CHANNEL = GIVEN["channel"]
BUTTONS = [
    {"type": "section", "text": {"type": "mrkdwn", "text": "May I?"}},
    {
        "type": "actions",
        "elements": [
            {
                "type": "button",
                "action_id": "yes",
                "text": {"type": "plain_text", "text": "Yes"},
                "value": "1",
            }
        ],
    },
]


def refusal(call, **arguments):
    """Return the word by which Slack refuses a call."""
    try:
        call(**arguments)
    except SlackApiError as exc:
        return exc.response["error"]
    return ""


def web_api(client):
    assert client.auth_test()["user_id"] == GIVEN["bot"]
    posted = client.chat_postMessage(channel=CHANNEL, text="one", blocks=BUTTONS)
    reply = client.chat_postMessage(channel=CHANNEL, text="two", thread_ts=posted["ts"])
    assert reply["message"]["thread_ts"] == posted["ts"]
    client.chat_update(channel=CHANNEL, ts=posted["ts"], text="three")
    client.chat_postEphemeral(channel=CHANNEL, user=GIVEN["user"], text="psst")
    client.assistant_threads_setStatus(
        channel_id=CHANNEL, thread_ts=posted["ts"], status="is working"
    )
    assert client.users_info(user=GIVEN["user"])["user"]["profile"]["display_name"]
    assert client.conversations_info(channel=CHANNEL)["channel"]["name"] == "general"


def refusals(client):
    post = client.chat_postMessage
    assert refusal(post, channel="C0", text="x") == "channel_not_found"
    assert refusal(post, channel=CHANNEL, text="") == "no_text"
    assert refusal(post, channel=CHANNEL, text="x", thread_ts="1.2")
    wrong = [{"type": "section"}]
    assert refusal(post, channel=CHANNEL, text="x", blocks=wrong) == "invalid_blocks"
    other = WebClient(token="xoxb-other", base_url=GIVEN["url"])
    assert refusal(other.auth_test) == "invalid_auth"
    assert refusal(WebClient(base_url=GIVEN["url"]).auth_test) == "not_authed"


def rate_limits(client):
    """The judge has limited the rate of the next two calls of users.info."""
    refused = {}
    try:
        client.users_info(user=GIVEN["user"])
    except SlackApiError as exc:
        refused = exc.response.headers
    assert refused.get("Retry-After") == "1"
    handler = RateLimitErrorRetryHandler(max_retry_count=1)
    patient = WebClient(token=GIVEN["token"], base_url=GIVEN["url"], retry_handlers=[handler])
    assert patient.users_info(user=GIVEN["user"])["ok"]


def files(client):
    sent = client.files_upload_v2(
        channel=CHANNEL, filename="a.txt", content="of the SDK", title="a"
    )
    info = client.files_info(file=sent["file"]["id"])["file"]
    request = urllib.request.Request(
        info["url_private_download"], headers={"Authorization": f"Bearer {GIVEN['token']}"}
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.read() == b"of the SDK"


def signatures(_):
    """Ours are right to Slack's verifier, and its own are ours."""
    verifier = SignatureVerifier(GIVEN["secret"])
    signed = {
        "body": GIVEN["body"],
        "timestamp": GIVEN["timestamp"],
        "signature": GIVEN["signature"],
    }
    assert verifier.is_valid(**signed)
    assert not verifier.is_valid(**signed | {"body": GIVEN["body"] + " "})
    made = verifier.generate_signature(timestamp=GIVEN["timestamp"], body=GIVEN["body"])
    assert made == GIVEN["signature"]


def socket_mode(client):
    """Bolt hears a mention and a button, is refreshed, and hears a direct message."""
    app = App(client=client, signing_secret=GIVEN["secret"])
    done = threading.Event()

    @app.event("app_mention")
    def mentioned(event, say):
        say(text="May I?", blocks=BUTTONS, thread_ts=event["ts"])

    @app.action("yes")
    def pressed(ack, body, client):
        ack()
        client.chat_update(
            channel=body["channel"]["id"], ts=body["container"]["message_ts"], text="ok"
        )

    @app.event("message")
    def told(event, say):
        if event["channel_type"] == "im":
            say("heard again")
            done.set()

    handler = SocketModeHandler(app, GIVEN["app_token"])
    handler.connect()
    assert done.wait(60), "the direct message did not come"
    handler.close()


CLIENT = WebClient(token=GIVEN["token"], base_url=GIVEN["url"])
for it in (web_api, refusals, rate_limits, files, signatures, socket_mode):
    run_check(it, CLIENT)
