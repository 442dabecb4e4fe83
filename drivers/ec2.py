"""EC2 and Eucalyptus through apache-libcloud.

libcloud's default signature of EC2 is version 2, which newer services misroute: version 4 is
requested. Eucalyptus signs with version 2 and answers under ``/services/Eucalyptus``. Calls that
libcloud lacks (status checks, terminating many instances at once) are sent through its connection
as plain queries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element

from libcloud.common.exceptions import BaseHTTPError
from libcloud.common.types import InvalidCredsError, LibcloudError, MalformedResponseError
from libcloud.compute.base import NodeImage, NodeSize
from libcloud.compute.drivers.ec2 import EC2NodeDriver, EucNodeDriver
from requests.exceptions import RequestException

from vgrads.drivers.api import SiteAccess, Survey
from vgrads.drivers.cloud import TAG_SLOT, CapacityError, Instance, Purchase
from vgrads.drivers.credentials import Credentials
from vgrads.kernel.errors import SiteError

LibcloudDriver = Any
LibcloudNode = Any
"""Node of apache-libcloud, which has no annotations."""

_TRANSIENT = re.compile(
    r"RequestLimitExceeded|Throttling|InternalError|InternalFailure|Unavailable|RequestTimeout|\b50[0234]\b"
)
_DENIED = re.compile(
    r"AuthFailure|Unauthorized|InvalidClientTokenId|SignatureDoesNotMatch|OptInRequired|AccessDenied|\b40[13]\b"
)
_SKEWED = re.compile(r"RequestExpired|Signature (not yet current|expired)|RequestTimeTooSkewed")
_GONE = "InvalidInstanceID"


class Ec2Api:
    """:class:`vgrads.drivers.cloud.CloudApi` over a libcloud driver."""

    def __init__(self, site: str, node_driver: LibcloudDriver, access: SiteAccess) -> None:
        self.site, self._driver, self._access = site, node_driver, access
        self._driver.connection.timeout = access.timeout_s
        # the connection that its constructor opened has libcloud's own timeout
        self._driver.connection.connect()
        self._checks_status = True

    def buy(self, purchase: Purchase) -> list[str]:
        access = self._access
        # libcloud wants objects, but sends only their ids
        size = NodeSize(purchase.node_type, purchase.node_type, 0, 0, 0, 0.0, self._driver)
        image = NodeImage(access.image, access.image, self._driver)
        nodes = self._request(
            self._driver.create_node,
            name=purchase.name,
            size=size,
            image=image,
            ex_keyname=access.key_name or None,
            ex_security_groups=list(access.security_groups) or None,
            ex_userdata=purchase.user_data,
            ex_metadata=dict(purchase.tags),
            # equal limits: all instances or none
            ex_mincount=purchase.nodes,
            ex_maxcount=purchase.nodes,
            ex_clienttoken=purchase.token,
            # they shut themselves down at their end, and must then cost nothing more
            ex_terminate_on_shutdown=True,
            ex_spot=purchase.spot,
        )
        # libcloud returns a single node as such, several as a list
        return [node.id for node in (nodes if isinstance(nodes, list) else [nodes])]

    def instances(self) -> list[Instance]:
        nodes = self._request(self._driver.list_nodes, ex_filters={"tag-key": TAG_SLOT})
        ours = [node for node in nodes if TAG_SLOT in node.extra.get("tags", {})]
        booted = self._booted() if ours else set()
        return [_make_instance(node, booted) for node in ours]

    def _booted(self) -> set[str] | None:
        """Return the instances that passed their status check; None if the cloud has no such
        checks."""
        if not self._checks_status:
            return None
        try:
            answer = self._query({"Action": "DescribeInstanceStatus"})
        except CapacityError:  # "invalid action": older Eucalyptus
            self._checks_status = False
            return None
        return {
            _find_text(item, "instanceId")
            for item in _list_items(answer, "instanceStatusSet")
            if _find_text(item, "instanceStatus/status") == "ok"
        }

    def terminate(self, ids: Sequence[str]) -> None:
        for group in [ids[n : n + 100] for n in range(0, len(ids), 100)]:
            try:
                self._query(
                    {"Action": "TerminateInstances", **_number_parameters("InstanceId", group)}
                )
            except CapacityError as error:
                if _GONE not in str(error):
                    raise SiteError(str(error), site=self.site, transient=False) from error
                self._terminate_singly(group)

    def _terminate_singly(self, ids: Sequence[str]) -> None:
        """Terminate instances one by one: one unknown id fails a call for many; alone it is no
        error."""
        for name in ids if len(ids) > 1 else ():
            self.terminate([name])

    def survey(self, node_types: Sequence[str]) -> Survey:
        access, problems, works = self._access, [], ["reach, list instances"]
        self.instances()
        filters: dict[str, dict[str, str]] = {}
        if access.image:
            filters[f"image {access.image}"] = {
                "Action": "DescribeImages",
                **_number_parameters("ImageId", [access.image]),
            }
        if access.key_name:
            filters[f"key {access.key_name}"] = {
                "Action": "DescribeKeyPairs",
                **_number_parameters("KeyName", [access.key_name]),
            }
        for group in access.security_groups:
            filters[f"security group {group}"] = {
                "Action": "DescribeSecurityGroups",
                **_number_parameters("GroupName", [group]),
            }
        for what, question in filters.items():
            try:
                self._query(question)
                works.append(what)
            except CapacityError as error:
                problems.append(f"{what}: {error}")
        if not access.image:
            problems.append("access.image is not set: no slot can be opened")
        problems += self._unknown_types(node_types)
        return Survey(version=self._driver.name, works=tuple(works), problems=tuple(problems))

    def _unknown_types(self, node_types: Sequence[str]) -> list[str]:
        sizes = {size.id for size in self._request(self._driver.list_sizes)}
        return [
            f"node type '{name}' is not known there" for name in node_types if name not in sizes
        ]

    def _query(self, params: Mapping[str, str]) -> Any:
        path = self._driver.path
        return self._request(self._driver.connection.request, path, params=dict(params)).object

    def _request(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the cloud and convert its errors: SiteError, or CapacityError for a refusal."""
        try:
            return call(*args, **kwargs)
        except InvalidCredsError as error:
            raise self._denied(str(error)) from error
        except (RequestException, OSError, TimeoutError) as error:
            raise SiteError(
                f"no answer: {type(error).__name__}",
                site=self.site,
                transient=True,
                fix="the request is repeated later",
            ) from error
        except MalformedResponseError as error:  # a proxy's page, or nothing, instead of XML
            raise SiteError(
                "the answer is not valid XML",
                site=self.site,
                transient=True,
                fix="the request is repeated later; check access.endpoint",
            ) from error
        except (BaseHTTPError, LibcloudError) as error:
            raise self._translated(" ".join(str(error).split())[:300]) from error

    def _translated(self, text: str) -> Exception:
        if _SKEWED.search(text):
            fix = "compare this machine's clock with the cloud's"
            return SiteError(text, site=self.site, transient=False, fix=fix)
        if _DENIED.search(text):
            return self._denied(text)
        if _TRANSIENT.search(text):
            return SiteError(
                text, site=self.site, transient=True, fix="the request is repeated later"
            )
        return CapacityError(text)

    def _denied(self, text: str) -> SiteError:
        fix = (
            "the keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from access.profile"
        )
        return SiteError(
            f"credentials are refused: {text}", site=self.site, transient=False, fix=fix
        )


def open_ec2(site: str, access: SiteAccess, credentials: Credentials) -> Ec2Api:
    """Open EC2 itself, or with ``access.endpoint`` a compatible service."""
    host, port, secure = _find_endpoint(access)
    try:
        node_driver = EC2NodeDriver(  # type: ignore[no-untyped-call]
            credentials.key,
            credentials.secret,
            secure=secure,
            host=host,
            port=port,
            region=access.region,
            token=credentials.token or None,
            signature_version="4",
        )
    except ValueError as error:
        raise SiteError(str(error), site=site, transient=False, fix="access.region") from error
    return Ec2Api(site, node_driver, access)


def open_eucalyptus(site: str, access: SiteAccess, credentials: Credentials) -> Ec2Api:
    """Open a Eucalyptus cloud at ``access.endpoint``."""
    host, port, secure = _find_endpoint(access)
    if host is None:
        raise SiteError("access.endpoint is not set", site=site, transient=False)
    path = urlsplit(access.endpoint).path.rstrip("/") or None
    node_driver = EucNodeDriver(credentials.key, credentials.secret, secure, host, path, port)  # type: ignore[no-untyped-call]
    return Ec2Api(site, node_driver, access)


def _find_endpoint(access: SiteAccess) -> tuple[str | None, int | None, bool]:
    if not access.endpoint:
        return None, None, True
    parts = urlsplit(access.endpoint)
    secure = parts.scheme == "https"
    return parts.hostname, parts.port or (443 if secure else 80), secure


def _make_instance(node: LibcloudNode, booted: set[str] | None) -> Instance:
    state = str(node.extra.get("status", "pending"))
    launched = node.extra.get("launch_time")
    age_s = 0.0
    if launched:
        began = datetime.fromisoformat(str(launched).replace("Z", "+00:00"))
        age_s = max(0.0, (datetime.now(UTC) - began).total_seconds())
    ok = state == "running" and (booted is None or node.id in booted)
    reason = str(node.extra.get("reason") or "")
    return Instance(
        id=node.id, state=state, ok=ok, tags=node.extra["tags"], age_s=age_s, reason=reason
    )


def _number_parameters(name: str, values: Sequence[str]) -> dict[str, str]:
    return {f"{name}.{n}": value for n, value in enumerate(values, 1)}


def _list_items(element: Element, name: str) -> list[Element]:
    """Return the items of a set in any namespace."""
    return [
        item
        for part in element.iter()
        if _strip_namespace(part) == name
        for item in part
        if _strip_namespace(item) == "item"
    ]


def _find_text(element: Element, path: str) -> str:
    for name in path.split("/"):
        children = [child for child in element if _strip_namespace(child) == name]
        if not children:
            return ""
        element = children[0]
    return str(element.text or "").strip()


def _strip_namespace(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]
