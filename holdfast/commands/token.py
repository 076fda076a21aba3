"""`holdfast token`: a bearer token for a script or a try-out."""

import argparse
import uuid
from typing import TYPE_CHECKING

from holdfast.commands import add_data_dir_flag, positive, read_settings
from holdfast.data_dir import DataDir
from holdfast.http.tokens import Role, mint_token

if TYPE_CHECKING:
    from holdfast.commands import Commands

TTL_SECONDS = 3600


def add_parser(commands: "Commands") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "token",
        help="print a bearer token, or many",
        description="Print one bearer token as the last line, or one per line for so many new users, signed with "
        "HOLDFAST_TOKEN_SECRET or, if that is not set, with the secret in the data directory of `holdfast up`.",
        epilog="example: holdfast token --user 6f1c5f0e-7d2b-4b1e-9a53-0d3f5c1b2a10 "
        "--org 0b9a4c52-3f3e-4f0c-8d55-5f0a7c6e1d21 --role customer",
    )
    add_data_dir_flag(parser)
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--user", type=uuid.UUID, metavar="UUID", help="who calls")
    who.add_argument("--count", type=positive, metavar="N", help="so many tokens, each of a user that nobody else is")
    parser.add_argument("--org", type=uuid.UUID, required=True, metavar="UUID", help="the organisation they belong to")
    parser.add_argument("--role", choices=[role.value for role in Role], required=True, help="what they may do")
    parser.add_argument("--tier", metavar="T", help="the customer's tier")
    parser.add_argument(
        "--ttl", type=positive, default=TTL_SECONDS, metavar="SECONDS", help="validity (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Mint and print."""
    settings = read_settings()
    if settings.token_secret is None:
        settings = read_settings(token_secret=DataDir(arguments.data_dir).read_token_secret())
    users = [arguments.user] if arguments.user else (uuid.uuid4() for _ in range(arguments.count))
    for user_id in users:
        token = mint_token(
            settings,
            user_id=user_id,
            organization_id=arguments.org,
            role=Role(arguments.role),
            ttl_seconds=arguments.ttl,
            tier=arguments.tier,
        )
        print(token)
