"""Slack's answers, with the fields that are read here."""

import msgspec


class Metadata(msgspec.Struct, frozen=True):
    """The metadata of an answer."""

    messages: list[str] = []


class Answer(msgspec.Struct, frozen=True):
    """The fields of every answer."""

    ok: bool
    error: str = ""
    needed: str = ""
    """The missing scope."""
    response_metadata: Metadata = Metadata()

    @property
    def details(self) -> str:
        """The missing scope, or the wrong argument."""
        if self.needed:
            return f"it needs the scope {self.needed}"
        return "; ".join(self.response_metadata.messages)


class Identity(msgspec.Struct, frozen=True):
    """The identity of the bot in a workspace: the answer of `auth.test`."""

    user_id: str
    """The user id of the bot, which a mention contains."""
    user: str
    """The name of that user."""


class Connection(msgspec.Struct, frozen=True):
    """The answer of `apps.connections.open`."""

    url: str


class Posted(msgspec.Struct, frozen=True):
    """The answer of `chat.postMessage`."""

    channel: str
    ts: str


class Upload(msgspec.Struct, frozen=True):
    """The answer of `files.getUploadURLExternal`."""

    upload_url: str
    file_id: str


class File(msgspec.Struct, frozen=True):
    """A file that Slack has."""

    is_external: bool = False
    """Whether the file is kept elsewhere, and Slack only has a link to it."""
    url_private: str = ""
    url_private_download: str = ""


class FileInfo(msgspec.Struct, frozen=True):
    """The answer of `files.info`."""

    file: File


class Profile(msgspec.Struct, frozen=True):
    """The names of a user."""

    display_name: str | None = None
    real_name: str | None = None


class User(msgspec.Struct, frozen=True):
    """A user."""

    name: str = ""
    profile: Profile = Profile()


class UserInfo(msgspec.Struct, frozen=True):
    """The answer of `users.info`."""

    user: User

    @property
    def name(self) -> str:
        """The name that the user prefers."""
        profile = self.user.profile
        return profile.display_name or profile.real_name or self.user.name


class Channel(msgspec.Struct, frozen=True):
    """A channel."""

    name: str | None = None


class ChannelInfo(msgspec.Struct, frozen=True):
    """The answer of `conversations.info`."""

    channel: Channel

    @property
    def name(self) -> str:
        return self.channel.name or ""
