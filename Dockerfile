# Trains and runs YOLOv9. `make image` builds it; `make smoke` tests it.
#
#   base     Debian with Python, an init process, a font and a C compiler
#   tools    uv, the installer; nothing of this stage is in the image
#   deps     the locked Python packages
#   weights  official weights, downloaded and checked (WEIGHTS=none: an empty folder)
#   runtime  the program
#
# There is no syntax line on purpose: the engine's built-in frontend knows all that stands here, and such a line makes
# every build ask a registry. Needs BuildKit (the default since Docker 23).

# Give it with a digest (debian:bookworm-slim@sha256:...) to build from exactly one base.
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS base
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
# gcc, libc6-dev, python3-dev: Triton compiles its driver binding once, on the machine where the GPU is; the loader, with
# gcc, its drawing
# procps: `watch -n 1 nvidia-smi`, ps
# fonts-wqy-microhei: class names in Chinese, Japanese and Korean (5 MB; Noto CJK has 91 MB)
# The log and cache files that go at the end are what makes two builds of this layer differ.
# hadolint ignore=DL3008
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        fonts-wqy-microhei \
        gcc \
        libc6-dev \
        procps \
        python3 \
        python3-dev \
        tini \
    && rm -rf /var/lib/apt/lists/* /var/log/* /var/cache/ldconfig/aux-cache /var/cache/debconf/*-old /var/lib/dpkg/*-old

FROM base AS tools
# hadolint ignore=DL3008
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3-venv
RUN --mount=type=bind,source=env/tools.lock,target=/tools.lock \
    python3 -m venv /tools && /tools/bin/pip install --no-cache-dir --require-hashes -r /tools.lock

FROM base AS deps
# cuda13: Turing and newer, driver 580 or newer. cuda12: Maxwell to Hopper, driver 525 or newer. Both run on a CPU.
ARG CUDA=cuda13
# UV_LINK_MODE: the cache mount is another file system, so hard links cannot work.
# Byte code is compiled here: a container that starts from a read-only layer would do it again at each start.
RUN --mount=type=bind,from=tools,source=/tools,target=/tools \
    --mount=type=bind,source=env/${CUDA}.lock,target=/packages.lock \
    --mount=type=cache,target=/var/cache/uv \
    python3 -m venv --without-pip /opt/venv \
    && UV_CACHE_DIR=/var/cache/uv UV_LINK_MODE=copy UV_PYTHON=/opt/venv/bin/python \
        /tools/bin/uv pip install --compile-bytecode --require-hashes -r /packages.lock

FROM base AS weights
# none, all, or names such as yolov9-s,yolov9-c.pt; see env/weights.json. The weights are licensed under the GPL-3.0.
ARG WEIGHTS=none
# An address that replaces the release's, such as a mirror inside a company.
ARG WEIGHTS_URL=
RUN --mount=type=bind,source=env/weights.json,target=/env/weights.json \
    --mount=type=bind,source=env/fetch_weights.py,target=/env/fetch_weights.py \
    python3 /env/fetch_weights.py --weights "${WEIGHTS}" --url "${WEIGHTS_URL}" --out /weights

FROM deps AS runtime
# HOME: any user id can write there, also with --read-only and a tmpfs on /tmp.
# USER: libraries ask for a name, and an id given by --user has no entry in /etc/passwd.
# YOLOV9_CACHE_DIR, TRITON_CACHE_DIR: beside the results, so that the next run finds them; a tmpfs on /tmp is mounted
# without the right to execute, which compiled kernels need.
# NVIDIA_*: what the NVIDIA runtime puts in: the driver's compute libraries and nvidia-smi.
ENV PATH=/opt/venv/bin:$PATH \
    LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    USER=yolov9 \
    YOLOV9_CACHE_DIR=/runs/.cache \
    YOLOV9_WEIGHTS_DIR=/weights \
    TRITON_CACHE_DIR=/runs/.cache/triton \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=weights /weights /weights
COPY entrypoint /opt/yolov9/entrypoint
COPY yolov9 /opt/yolov9/yolov9
COPY LICENSE /opt/yolov9/LICENSE
COPY env/conda /usr/local/bin/conda
# /workspace holds what commands from articles expect in the working folder; /root/yolov9 is its other name there.
# The folders with mode 1777 are for whichever user id the container is given.
# Last, su, mount and the like lose the right to run as root: nobody here has a password or needs another user.
RUN echo /opt/yolov9 > /opt/venv/lib/python3.11/site-packages/yolov9.pth \
    && python -m compileall -q /opt/yolov9 \
    && mkdir -p /workspace /data /runs \
    && chmod 1777 /workspace /runs \
    && for script in train train_dual val val_dual detect detect_dual benchmark_loader check_gpu; do \
        ln -s "/opt/yolov9/yolov9/${script}.py" "/workspace/${script}.py"; done \
    && ln -s /runs /workspace/runs \
    && ln -s /workspace /root/yolov9 \
    && chmod 755 /root \
    && find / -xdev -type f -perm /6000 -exec chmod a-s {} +
WORKDIR /workspace
# Results outlive the container's own layer and stay writable with --read-only, also when nothing is mounted.
VOLUME /runs
USER 1000:1000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["python", "-m", "entrypoint", "health"]
# -s: no warning when the container also runs with --init.
ENTRYPOINT ["tini", "-s", "--", "python", "-m", "entrypoint"]
CMD []

# Last, so that a new revision rebuilds nothing above.
ARG BASE_IMAGE
ARG CUDA=cuda13
ARG WEIGHTS=none
ARG VERSION=0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="yolov9" \
      org.opencontainers.image.description="Trains and runs YOLOv9 well on whatever machine it lands on" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}" \
      yolov9.cuda="${CUDA}" \
      yolov9.weights="${WEIGHTS}"
