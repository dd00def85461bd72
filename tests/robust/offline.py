"""Commands for local models in a process in which every connection is an error.

python -m tests.robust.offline FOLDER, the folder of an exported model
"""

import socket
import sys


class Refused(BaseException):
    """Not caught by anything that means to try again."""


def refuse(*arguments, **_):
    raise Refused(f"a connection was asked for: {arguments[-1:]}")


def connect(own, address):
    if own.family != getattr(socket, "AF_UNIX", None):
        refuse(address)


def main(folder):
    for name in ("getaddrinfo", "gethostbyname", "create_connection"):
        setattr(socket, name, refuse)
    socket.socket.connect = socket.socket.connect_ex = connect
    from bayesattn.commands.main import main as command

    small = ["--depths", "1", "--samples", "1"]
    for words in (
        ["lm", "generate", folder, "The", "--tokens", "1"],
        ["lm", "passkey", folder, "--lengths", "1x", *small],
        ["lm", "passkey", "zoo:passkey", "--lengths", "1x", *small],
        ["tunnel", "fidelity", "zoo:bijection-10", "--sequences", "4"],
        ["claims", "list"],
        ["prior", "draw", "ggd", "-o", f"{folder}/prior.png"],
    ):
        code = command(words)
        assert code == 0, (words, code)
    asked = []

    def nobody(address, *_, **__):
        asked.append(address[0])
        raise socket.gaierror(-2, "Name or service not known")

    socket.create_connection = nobody
    # a name that is not here is asked for, but not for a minute
    code = command(["lm", "priors", "no-such-owner/no-such-model"])
    print(code, {*asked}, "once" if len(asked) < 4 else "again and again")


if __name__ == "__main__":
    main(sys.argv[1])
