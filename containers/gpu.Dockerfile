# ms-swift, vLLM, DeepSpeed and swift-vlrft at the versions of requirements/gpu.txt, for NVIDIA GPUs.
#
#   docker build -f containers/gpu.Dockerfile -t swift-vlrft:gpu .
#   docker run --rm --gpus all --ipc host -v "$PWD":/work -v ~/.cache:/cache swift-vlrft:gpu \
#       vlrft doctor
#
# `--ipc host`: NCCL and data workers need more shared memory than a container's 64 MB. The driver must
# run CUDA 13.0 (580 or newer). The compiler is for what DeepSpeed and Triton build when they are used.
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04

ENV DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 DS_BUILD_OPS=0 PATH=/opt/venv/bin:$PATH
# Where models, sets and plans are kept: a volume, so that they outlive the container.
ENV XDG_CACHE_HOME=/cache HF_HOME=/cache/huggingface MODELSCOPE_CACHE=/cache/modelscope
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends git python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/venv

COPY requirements /opt/swift-vlrft/requirements
RUN pip install -r /opt/swift-vlrft/requirements/gpu.txt

COPY . /opt/swift-vlrft
RUN pip install --no-deps /opt/swift-vlrft

WORKDIR /work
CMD ["vlrft", "--help"]
