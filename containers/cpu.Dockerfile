# The set of `make test`, requirements/cpu.txt, without a GPU: to try recipes, plan, check and score.
#
#   docker build -f containers/cpu.Dockerfile -t swift-vlrft:cpu .
#   docker run --rm -v "$PWD":/work swift-vlrft:cpu vlrft demo
FROM debian:bookworm-slim

ENV DEBIAN_FRONTEND=noninteractive DS_BUILD_OPS=0 VIRTUAL_ENV=/opt/venv PATH=/opt/venv/bin:$PATH
# The compiler and libnuma are for vLLM's CPU build.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ git libnuma1 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/venv \
    && pip install --no-cache-dir uv==0.13.9

COPY requirements /opt/swift-vlrft/requirements
RUN uv pip install --no-cache --override /opt/swift-vlrft/requirements/override.txt \
    -r /opt/swift-vlrft/requirements/cpu.txt

COPY . /opt/swift-vlrft
RUN uv pip install --no-cache --no-deps --no-build-isolation /opt/swift-vlrft

WORKDIR /work
CMD ["vlrft", "--help"]
