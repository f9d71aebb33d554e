"""Narrows the list of an environment's packages to those of a lock file: python env/sbom.py LIST.json LOCK OUT_FOLDER.

Writes sbom.json (CycloneDX) and licences.txt (one line a package: name, version, licence as the package states it).
Fails when a package of the lock file is not in the environment, so that nothing that the image holds is left out.
Standard library only. Debian's packages in the image are not Python packages: `dpkg -l` and /usr/share/doc list those.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(?:\s*;\s*(?P<marker>[^\\]+))?", re.MULTILINE)
"""A line of a lock file; one with a marker is for some platforms only."""


def normalised(name: str) -> str:
    """Package names compare without case, and with one kind of dash."""
    return re.sub(r"[-_.]+", "-", name).lower()


def licence_of(component: dict[str, Any]) -> str:
    """Returns the licences of a component in one line."""
    found = []
    for entry in component.get("licenses", []):
        licence = entry.get("license", {})
        text = entry.get("expression") or licence.get("id") or licence.get("name") or ""
        found.append(" ".join(str(text).split())[:80])
    return " / ".join(dict.fromkeys(found)) or "not stated"


def main(listed: Path, lock: Path, folder: Path) -> None:
    """Writes both files."""
    pins = {normalised(match[1]): match for match in PIN.finditer(lock.read_text(encoding="utf-8"))}
    bom = json.loads(listed.read_text(encoding="utf-8"))
    kept = [part for part in bom["components"] if normalised(part["name"]) in pins]
    names = {normalised(part["name"]) for part in kept}
    missing = [match[1] for name, match in pins.items() if name not in names and not match["marker"]]
    if missing:
        sys.exit(f"sbom: {', '.join(missing)} of {lock} are not in the environment; make it anew")
    references = {part["bom-ref"] for part in kept} | {bom["metadata"].get("component", {}).get("bom-ref")}
    bom["components"] = kept
    bom["dependencies"] = [
        {**entry, "dependsOn": [name for name in entry.get("dependsOn", []) if name in references]}
        for entry in bom.get("dependencies", [])
        if entry["ref"] in references
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sbom.json").write_text(json.dumps(bom, indent=1) + "\n", encoding="utf-8")
    lines = [f"{part['name']:32} {part['version']:18} {licence_of(part)}" for part in kept]
    (folder / "licences.txt").write_text("\n".join(sorted(lines, key=str.lower)) + "\n", encoding="utf-8")
    print(f"{len(kept)} packages: {folder}/sbom.json and {folder}/licences.txt")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
