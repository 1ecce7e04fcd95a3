# One image for API, controller and Ray nodes.
#
#   docker build -t atoll .
#   docker run -e ATOLL_HOST=0.0.0.0 -e ATOLL_TOKEN=... -e DATABASE_URL=postgresql://... -p 8750:8750 atoll
#
# torch: PyPI's build for Linux needs an NVIDIA driver only where GPUs are used. A mirror or another build of the same
# version can be given with --build-arg PIP_ARGUMENTS.

FROM node:20-bookworm-slim AS web
WORKDIR /src/web
COPY web/package.json web/package-lock.json web/.npmrc ./
RUN ["npm", "ci", "--no-fund", "--no-audit"]
COPY web/ ./
RUN ["npm", "run", "build"]

FROM python:3.11-slim-bookworm AS wheel
ARG PIP_ARGUMENTS=""
WORKDIR /src
RUN ["python", "-m", "venv", "/opt/atoll"]
# Dependencies first: they change more seldom than the sources.
COPY constraints.txt pyproject.toml README.md LICENSE hatch_build.py ./
RUN /opt/atoll/bin/python -c "import tomllib; print('\n'.join(tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies']))" > requirements.txt \
    && /opt/atoll/bin/pip install --no-cache-dir $PIP_ARGUMENTS --constraint constraints.txt --requirement requirements.txt
COPY orchestrator/ orchestrator/
COPY actors/ actors/
COPY api/ api/
COPY atoll/ atoll/
COPY examples/ examples/
COPY --from=web /src/web/dist web/dist
RUN /opt/atoll/bin/pip install --no-cache-dir --no-deps $PIP_ARGUMENTS .

FROM python:3.11-slim-bookworm
# wget: the probes that KubeRay gives to Ray pods call it.
RUN apt-get update \
    && apt-get install -y --no-install-recommends wget \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 atoll \
    && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin atoll
COPY --from=wheel /opt/atoll /opt/atoll
ENV PATH=/opt/atoll/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    ATOLL_STATE_DIRECTORY=/tmp/atoll \
    RAY_AUTH_MODE=disabled
USER 10001:10001
WORKDIR /tmp
EXPOSE 8750
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=6 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f\"http://127.0.0.1:{os.environ.get('ATOLL_PORT', '8750')}/healthz\", timeout=4)"]
CMD ["python", "-m", "api"]
