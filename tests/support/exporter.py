"""A small exporter in a thread whose metrics tests set: names and labels as the DCGM and node exporters have them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"

XID_ERRORS = "DCGM_FI_DEV_XID_ERRORS"
DOUBLE_BIT_ERRORS = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
ROW_REMAP_FAILURE = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
GPU_TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
NODE_TIME = "node_time_seconds"


def gpu_labels(host: str, gpu: int, *, model: str = "NVIDIA H100 80GB HBM3") -> dict[str, str]:
    """The labels that the DCGM exporter gives to a metric of a GPU."""
    return {
        "gpu": str(gpu),
        "UUID": f"GPU-{host}-{gpu}",
        "pci_bus_id": f"00000000:{gpu + 1:02X}:00.0",
        "device": f"nvidia{gpu}",
        "modelName": model,
        "Hostname": host,
    }


class Exporter:
    """Serves `/metrics` on loopback. What is set stays until it is set again or removed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self.is_failing = False
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = exporter.text().encode()
                self.send_response(500 if exporter.is_failing else 200)
                self.send_header("Content-Type", TEXT_FORMAT)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with suppress(BrokenPipeError):  # Prometheus was stopped meanwhile
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the base class
                """Tests print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def target(self) -> str:
        """The address to scrape."""
        return f"127.0.0.1:{self._server.server_port}"

    def set(self, name: str, labels: Mapping[str, str], value: float) -> None:
        with self._lock:
            self._values[name, tuple(sorted(labels.items()))] = value

    def clear(self) -> None:
        """Forget all values; Prometheus marks their series as ended at its next scrape."""
        with self._lock:
            self._values.clear()

    def text(self) -> str:
        with self._lock:
            values = sorted(self._values.items())
        return "".join(
            f"{name}{{{','.join(f'{key}={_quoted(text)}' for key, text in labels)}}} {value}\n"
            for (name, labels), value in values
        )

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{escaped}"'
