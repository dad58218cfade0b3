"""The manifest of the Slack app in the examples asks for what the code needs, and no more."""

from pathlib import Path

import yaml

from orchestrator.products.chat.slack.events import HEARD
from tests.chat.fakes.slack_methods import METHODS

MANIFEST = Path(__file__).parents[2] / "examples" / "chat" / "slack-app.yaml"
SCOPES = {
    "assistant.threads.setStatus": {"chat:write"},
    "chat.postEphemeral": {"chat:write"},
    "chat.postMessage": {"chat:write"},
    "chat.update": {"chat:write"},
    "conversations.history": {"im:history"},
    "conversations.replies": {"channels:history", "groups:history", "mpim:history"},
    "conversations.info": {"channels:read", "groups:read"},
    "files.completeUploadExternal": {"files:write"},
    "files.getUploadURLExternal": {"files:write"},
    "files.info": {"files:read"},
    "users.info": {"users:read"},
}
"""Those of each method, as docs.slack.dev has them; others need none."""
EVENTS = {
    "app_mention": {"app_mentions:read"},
    "app_uninstalled": set[str](),
    "message.channels": {"channels:history"},
    "message.groups": {"groups:history"},
    "message.im": {"im:history"},
    "message.mpim": {"mpim:history"},
    "tokens_revoked": set[str](),
}


def test_the_manifest_has_the_scopes_and_events_that_are_used() -> None:
    found = yaml.safe_load(MANIFEST.read_text())
    scopes = set(found["oauth_config"]["scopes"]["bot"])
    events = set(found["settings"]["event_subscriptions"]["bot_events"])
    without = {"api.test", "auth.test", "apps.connections.open"}

    assert set(SCOPES) == set(METHODS) - without
    assert events == set(EVENTS)
    assert {it.partition(".")[0] for it in events} >= HEARD
    assert scopes == set().union(*SCOPES.values(), *EVENTS.values())
    assert found["settings"]["interactivity"]["is_enabled"]
    assert found["features"]["app_home"]["messages_tab_enabled"]
