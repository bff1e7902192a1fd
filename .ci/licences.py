"""Checks that every dependency may be used under a licence that deny.toml allows; what `cargo deny check licenses` does, where it is absent."""

import json
import re
import subprocess
import sys
import tomllib


def satisfied(expression, allowed):
    """Whether the licences allowed satisfy an SPDX expression; in old ones a slash means OR."""
    names = []

    def judge(match):
        word = match.group().strip()
        if word in ("AND", "OR", "(", ")"):
            return f" {word.lower()} "
        names.append(word in allowed)
        return f" names[{len(names) - 1}] "

    terms = re.sub(r"[()]|\b(?:AND|OR)\b|[\w.+-]+(?: WITH [\w.+-]+)?", judge, expression.replace("/", " OR "))
    # What is left are brackets, `and`, `or` and subscripts of `names`, whatever the expression was.
    if re.fullmatch(r"(?:[() ]|and|or|names\[\d+\])*", terms) is None:
        sys.exit(f"cannot read the licence {expression!r}")
    return eval(terms, {"names": names})


def main():
    with open("deny.toml", "rb") as file:
        allowed = set(tomllib.load(file)["licenses"]["allow"])
    metadata = subprocess.run(
        ["cargo", "metadata", "--locked", "--format-version", "1"], check=True, stdout=subprocess.PIPE
    ).stdout
    packages = [package for package in json.loads(metadata)["packages"] if package["source"] is not None]
    refused = [package for package in packages if not satisfied(package["license"] or "none", allowed)]
    for package in refused:
        print(f"{package['name']} {package['version']}: {package['license'] or 'no licence'}")
    if refused:
        sys.exit(f"{len(refused)} of {len(packages)} dependencies may not be used under the licences of deny.toml")
    print(f"{len(packages)} dependencies, all under licences of deny.toml")


if __name__ == "__main__":
    main()
