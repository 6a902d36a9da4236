"""The settings of a run's server, and of the volunteers that it starts itself."""

from typing import Annotated, Literal

import msgspec

from fedlearn.config.setting import setting


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The address of the server, and who may join it."""

    host: Annotated[str, setting("address the server listens on", min_length=1, of_start=True, common=True)] = (
        "127.0.0.1"
    )
    port: Annotated[int, setting("TCP port; 0 = any free one", ge=0, le=65535, of_start=True, common=True)] = 55551
    board: Annotated[
        int,
        setting(
            "port on this machine of a page that shows the runs (needs fedlearn[board]); 0 = no page",
            ge=0,
            le=65535,
            of_start=True,
            common=True,
        ),
    ] = 55580
    audit: Annotated[
        float,
        setting("share of the volunteers' work that is recomputed to check it; 0 = none", ge=0, le=1, resumable=True),
    ] = 0.02
    max_share: Annotated[
        float,
        setting(
            "largest share of a step that volunteers of one identity or address are asked for, so that no liar among "
            "the fastest decides much; 1 = no limit",
            ge=0.01,
            le=1,
            resumable=True,
        ),
    ] = 1.0
    seats: Annotated[
        int,
        setting(
            "volunteers that hold one replica between them, and go through members in a fixed order; 0 = as many as "
            "their memory asks for",
            ge=0,
            le=12,
            resumable=True,
        ),
    ] = 0
    shards: Annotated[
        int,
        setting(
            "parts that a crew cuts the rows of a language model's vocabulary into, in its head and its embedding, at "
            "least; it makes more where no other division fits its memory",
            ge=1,
            le=12,
            resumable=True,
        ),
    ] = 1
    wire: Annotated[
        Literal["float32", "float16", "int8-delta", "int4-delta"],
        setting("how activations travel between the seats of a crew", resumable=True),
    ] = "float32"
    direct: Annotated[
        bool,
        setting(
            "seats of a crew send activations straight to each other, where both volunteers allow that and one reaches "
            "the other",
            resumable=True,
        ),
    ] = False
    public_host: Annotated[
        str,
        setting(
            "name or address of this machine in the line for volunteers, if it is not the machine's own", of_start=True
        ),
    ] = ""
    tls: Annotated[
        Literal["auto", "on", "off"],
        setting("encryption; auto = on unless the host is a loopback address", of_start=True, common=True),
    ] = "auto"
    tls_cert: Annotated[
        str,
        setting("PEM file of a certificate from a certificate authority, in place of the server's own", of_start=True),
    ] = ""
    tls_key: Annotated[
        str, setting("PEM file of the certificate's key; by default the certificate's file", of_start=True)
    ] = ""
    token_file: Annotated[
        str,
        setting(
            "file with the token that volunteers must know (FEDLEARN_TOKEN holds the token itself)",
            of_start=True,
            common=True,
        ),
    ] = ""
    allow: Annotated[
        str,
        setting(
            "file with the identities that may join, one per line; without it everybody may",
            of_start=True,
            common=True,
        ),
    ] = ""
    connections_per_address: Annotated[
        int, setting("connections from one address, or one /64 of IPv6; 0 = no limit", ge=0, le=2**31, of_start=True)
    ] = 256
    connections_per_identity: Annotated[
        int, setting("connections of one identity; 0 = no limit", ge=0, le=2**31, of_start=True)
    ] = 128
    joins_per_minute: Annotated[
        int,
        setting("joins per minute from one address, and by one identity; 0 = no limit", ge=0, le=2**31, of_start=True),
    ] = 240


class VolunteerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The volunteers that the server starts on its own machine, and those that it is told to expect."""

    volunteers: Annotated[
        int, setting("local volunteer processes that the server starts", ge=0, le=1024, of_start=True, common=True)
    ] = 1
    threads: Annotated[
        int, setting("threads of each local volunteer; 0 = all cores", ge=0, le=1024, of_start=True, common=True)
    ] = 0
    expected_volunteers: Annotated[
        int,
        setting(
            "volunteers that will join from other machines, each about as fast as this one; an rnn chooses its size by "
            "the trials of all",
            ge=0,
            le=1_000_000,
            common=True,
        ),
    ] = 0
    device: Annotated[
        Literal["cpu", "cuda", "mps"],
        setting("where local volunteers run the trials of PyTorch models", of_start=True, common=True),
    ] = "cpu"
