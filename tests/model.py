"""A second implementation of docs/spec/surface.md, written from that page alone.

It shares no code with the library; each function names its section.  A tool is a pair (group, name) throughout.
"""

import re

RANK = {"deny": 0, "none": 0, "changed": 1, "ask": 2, "allow": 3}  # section 3.7
CLEAN = r"[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*"  # section 1.6

Tool = tuple[str, str]
Definition = tuple[str, tuple[str, ...], str | None]  # token, needs, own wire name
Verdict = tuple[str, str, bool]  # result, decided_by, whether the stored want is lacking


def qualified(tool: Tool) -> str:
    """Section 1.1: the qualified id."""
    return tool[0] + "/" + tool[1]


def is_up(world: dict, group: str) -> bool:
    """Section 1.3: whether the group is in the catalog and up."""
    states = [entry["up"] for entry in world["catalog"] if entry["id"] == group]
    return states != [] and all(states)


def catalog_tools(world: dict) -> dict[Tool, set[Definition]]:
    """Sections 1.2 and 1.3: the unequal definitions that claim each qualified id."""
    tools: dict[Tool, set[Definition]] = {}
    for group in world["catalog"]:
        for tool in group["tools"]:
            claims = tools.setdefault((group["id"], tool["name"]), set())
            claims.add((tool["definition"], tuple(sorted(set(tool["needs"]))), tool["wire_name"]))
    return tools


def selects(selector: str, tool: Tool) -> bool:
    """Section 1.4: whether the selector names the tool."""
    group, name = tool
    return selector in ("*", group + "/*", group + "/" + name)


def legal(name: str, profile: dict) -> bool:
    """Section 1.6: whether the provider takes this text as a name."""
    names = profile["names"]
    return 0 < len(name) <= names["limit"] and re.fullmatch("[" + names["chars"] + "]*", name) is not None


def wire_name(tool: Tool, own: str | None, profile: dict) -> object:
    """Section 1.6: the wire name or None.  The digest form is stood for by the tool itself: it is unique."""
    if own is not None:
        return own if legal(own, profile) else None
    readable = tool[0] + "__" + tool[1]
    if re.fullmatch(CLEAN, tool[0]) and re.fullmatch(CLEAN, tool[1]) and legal(readable, profile):
        return readable
    fits = profile["names"]["limit"] >= 19 and all(legal(c, profile) for c in "_abcdefghijklmnopqrstuvwxyz234567")
    return tool if fits else None


def counting_events(loads: list[dict], path: list[str] | None) -> list[int]:
    """Sections 2.3 and 2.4: the indexes of the events that count, in the order in which they are taken."""
    if path is None:
        return list(range(len(loads)))
    placed: list[tuple[int, int]] = []  # position, place in the ledger
    for index, event in enumerate(loads):
        if event["at"] is None:
            placed.append((max((position for position, _ in placed), default=-1), index))
        elif event["at"] in path:
            placed.append((path.index(event["at"]), index))
    return [index for _, index in sorted(placed)]


def load_state(world: dict, tool: Tool) -> tuple[bool, int | None]:
    """Sections 2.5 and 2.6: whether the tool is loaded, and the index of its mark."""
    loaded, removed, mark = False, False, None
    for index in counting_events(world["loads"], world["path"]):
        event = world["loads"][index]
        if not any(selects(selector, tool) for selector in event["on"]):
            continue
        if event["do"] == "load" and (not loaded or removed):
            marks = qualified(tool) in (event["definitions"] or {}) and (event["at"], event["call"]) != (None, None)
            loaded, removed, mark = True, False, index if marks else None
        elif event["do"] == "unload":
            loaded, removed, mark = False, False, None
        elif event["do"] == "removal" and loaded:
            removed, mark = True, None
    return loaded, mark


def rules_result(rules: list[tuple[str, dict]], tool: Tool, token: str) -> tuple[str, tuple[str, str] | None]:
    """Sections 3.1 and 3.3: the result of (source name, rule) pairs, and source and id of the deciding rule."""
    found: dict[str, list[tuple[str, str]]] = {}
    for source, rule in rules:
        if not selects(rule["on"], tool):
            continue
        pin = rule["pin"]
        if pin is None or [qualified(tool), token] in pin:
            found.setdefault(rule["effect"], []).append((source, rule["id"]))
        elif any(listed == qualified(tool) for listed, _ in pin):
            found.setdefault("changed", []).append((source, rule["id"]))
    for result in ("deny", "ask", "allow", "changed"):
        if result in found:
            return result, min(found[result])
    return "none", None


def pool_verdict(authority: dict, tool: Tool, token: str) -> Verdict:
    """Sections 3.2, 3.4, 3.6 and 3.9: the pool, for a child with its want in place of allow rules."""
    sources, child = authority["sources"], authority["child"]
    if child and child["want"] is None:
        return "none", "launch!missing", True
    for name in sorted(sources):
        if sources[name]["state"] != "ok":
            return "none", name + "!" + sources[name]["state"], False
    rules = [(name, rule) for name in sources for rule in sources[name]["rules"]]
    rules += [("granted", rule) for rule in authority["granted"]]
    if child is not None:
        wanted = any(selects(on, tool) for on in child["want"])
        rules = [(n, rule) for n, rule in rules if rule["effect"] == "deny" or (rule["effect"] == "ask" and wanted)]
        rules += [("want", {"id": on, "effect": "allow", "on": on, "pin": None}) for on in child["want"]]
    result, decider = rules_result(rules, tool, token)
    return result, decider[0] + "#" + decider[1] if decider else "pool", False


def ceiling_verdict(name: str, ceiling: dict, tool: Tool, token: str) -> Verdict:
    """Sections 3.5 and 3.9: one ceiling."""
    if ceiling["state"] != "ok":
        return "none", "ceiling " + name + "!" + ceiling["state"], False
    if ceiling["rules"] is None:
        return ceiling["effect"], "ceiling " + name, False
    result, decider = rules_result([("", rule) for rule in ceiling["rules"]], tool, token)
    return result, "ceiling " + name + ("#" + decider[1] if decider else ""), False


def decide(authority: dict, tool: Tool, token: str) -> Verdict:
    """Sections 3.6 to 3.9: the least of pool, ceilings by name, and parent; of equals the first."""
    verdicts = [pool_verdict(authority, tool, token)]
    for name, ceiling in sorted(authority["ceilings"].items()):
        verdicts.append(ceiling_verdict(name, ceiling, tool, token))
    child = authority["child"]
    if child is not None and isinstance(child["parent"], str):
        verdicts.append(("none", "parent!" + child["parent"], False))
    elif child is not None:
        result, text, _ = decide(child["parent"], tool, token)  # that the parent lacks a want is no lack of the child
        verdicts.append((result, "parent: " + text, False))
    return min(verdicts, key=lambda verdict: RANK[verdict[0]])  # min keeps the first of equals


def withheld_alone(world: dict, tool: Tool, definitions: set[Definition], verdict: Verdict) -> tuple[str, str] | None:
    """Section 4, points 1 to 6: reason and decided_by, or None; `verdict` counts only if there is no conflict."""
    if len(definitions) > 1:
        return "name_conflict", ""
    ((_, needs, own),) = definitions
    if wire_name(tool, own, world["profile"]) is None:
        return "name_unrepresentable", ""
    result, text, lacks_want = verdict
    if RANK[result] == 0:
        return "policy_missing" if lacks_want else "not_authorised", text
    for group in [tool[0], *needs]:
        if not is_up(world, group):
            return "resource_unavailable", "group " + group
    if result == "changed":
        return "schema_changed", text
    return None if load_state(world, tool)[0] else ("not_loaded", "")


def places(world: dict, surface: dict[Tool, str]) -> dict[Tool, int | None]:
    """Sections 5.2 and 5.3: the load at which each tool of the surface (tool to token) is deferred, or None."""
    place: dict[Tool, int | None] = {}
    for tool, token in surface.items():
        mark = load_state(world, tool)[1]
        kept = world["profile"]["defers"] and mark in world["retained"]
        place[tool] = mark if kept and world["loads"][mark]["definitions"][qualified(tool)] == token else None
    if world["profile"]["needs_immediate"] and None not in place.values():
        return dict.fromkeys(place)
    return place


def predict(world: dict) -> dict:
    """Sections 4 and 5: the answer of Annex A for a world of Annex A."""
    withheld, surface, given, wires = {}, {}, {}, {}  # each by tool
    for tool, definitions in catalog_tools(world).items():
        token, _, own = min(definitions, key=repr)  # the only one, but for a conflict
        given[tool] = decide(world["authority"], tool, token)
        reason = withheld_alone(world, tool, definitions, given[tool])
        if reason:
            withheld[tool] = reason
        else:
            surface[tool], wires[tool] = token, wire_name(tool, own, world["profile"])
    for tool, wire in wires.items():  # section 4, point 7
        if list(wires.values()).count(wire) > 1:
            withheld[tool] = ("name_conflict", "")
            del surface[tool]
    place = places(world, surface)
    order = sorted(surface, key=lambda t: (-1 if place[t] is None else world["retained"].index(place[t]), t))
    return {
        "callable": {qualified(t): {"effect": given[t][0], "decided_by": given[t][1], "at": place[t]} for t in surface},
        "withheld": {qualified(t): {"reason": reason, "decided_by": text} for t, (reason, text) in withheld.items()},
        "order": [qualified(tool) for tool in order],
    }
