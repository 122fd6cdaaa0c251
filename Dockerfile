# syntax=docker/dockerfile:1
# A served home: the API and its workers. docs/how-to/docker.md tells how to run it.
FROM python:3.13-slim AS build

WORKDIR /src
COPY requirements/uv.txt requirements/uv.txt
RUN pip install --no-cache-dir --require-hashes -r requirements/uv.txt
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY requirements/dev.txt requirements/dev.txt
COPY src src
# The versions and hashes that the tests ran with; what only development needs stays out.
RUN uv venv /opt/asterism \
    && uv pip install --no-cache --python /opt/asterism/bin/python --constraint requirements/dev.txt \
        ".[documents,embedded,encoder,mcp,postgres,telemetry]"

FROM python:3.13-slim

RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /data asterism \
    && install --directory --mode 0700 --owner asterism --group asterism /data
COPY --from=build /opt/asterism /opt/asterism

ENV PATH=/opt/asterism/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOME=/data \
    XDG_CONFIG_HOME=/data/config \
    ASTERISM_DATA=/data \
    ASTERISM_MODELS=/data/models \
    ASTERISM_NONINTERACTIVE=1

USER asterism
WORKDIR /data
VOLUME /data
EXPOSE 8283
STOPSIGNAL SIGTERM

HEALTHCHECK --interval=30s --timeout=10s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8283/health', timeout=8)"]

ENTRYPOINT ["asterism"]
# A container is reached from outside of itself only through what publishes its port.
CMD ["serve", "--host", "0.0.0.0", "--behind-proxy"]
