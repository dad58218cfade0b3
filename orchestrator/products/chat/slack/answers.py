"""What Slack answers, as far as we read it."""

import msgspec


class Metadata(msgspec.Struct, frozen=True):
    """What Slack says beside an answer."""

    messages: list[str] = []


class Answer(msgspec.Struct, frozen=True):
    """What every answer has."""

    ok: bool
    error: str = ""
    needed: str = ""
    """The scope that is missing."""
    response_metadata: Metadata = Metadata()

    @property
    def details(self) -> str:
        """Which scope is needed, or which argument is wrong."""
        if self.needed:
            return f"it needs the scope {self.needed}"
        return "; ".join(self.response_metadata.messages)


class Identity(msgspec.Struct, frozen=True):
    """Who we are in a workspace: the answer of `auth.test`."""

    user_id: str
    """The user of the bot, whom a mention names."""
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
    """It is kept elsewhere, and Slack has a link to it."""
    url_private: str = ""
    url_private_download: str = ""


class FileInfo(msgspec.Struct, frozen=True):
    """The answer of `files.info`."""

    file: File


class Profile(msgspec.Struct, frozen=True):
    """How a user is called."""

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
        """What the user wants to be called."""
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
