"""`python -m umbilical.lab.fetch URL`: one GET request from inside a node, without curl.

Prints the body; the exit status is 0 for 2xx, else 1. It does not verify certificates: it reads health and metrics of
programs that the lab started.
"""

import argparse
import ssl
import sys
import urllib.error
import urllib.request
from typing import Final

SECONDS: Final = 5.0
MAX_BYTES: Final = 8 << 20


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("lab-fetch", description="Fetch a URL and print the body.", allow_abbrev=False)
    parser.add_argument("url", metavar="URL")
    url: str = parser.parse_args(arguments).url
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # Without a proxy from the environment: it cannot reach the lab's networks.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(url, timeout=SECONDS) as answer:
            sys.stdout.buffer.write(answer.read(MAX_BYTES))
    except urllib.error.HTTPError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
