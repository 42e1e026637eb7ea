# Two stages: the first makes the wheel and an environment that holds it, the second has that environment alone.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
# [vectors] adds numpy, which searches by vectors where PostgreSQL has no pgvector, and on SQLite
ARG EXTRAS=""
WORKDIR /src
COPY . .
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheel . \
 && python -m venv --without-pip /opt/chatkeep \
 && python -m pip --python /opt/chatkeep install --no-cache-dir "$(echo /wheel/*.whl)${EXTRAS}"

FROM python:${PYTHON}-slim
COPY --from=build /opt/chatkeep /opt/chatkeep
RUN install -d -o 10001 -g 10001 -m 0750 /srv/chatkeep/var
WORKDIR /srv/chatkeep
# Temporary files go to the volume too, since the rest may be read-only. Draining ends within the ten seconds
# that `docker stop` gives; who gives more sets CHATKEEP_SERVER_DRAIN_TIMEOUT.
ENV PATH=/opt/chatkeep/bin:$PATH \
    HOME=/srv/chatkeep \
    TMPDIR=/srv/chatkeep/var \
    PYTHONDONTWRITEBYTECODE=1 \
    CHATKEEP_HOST=0.0.0.0 \
    CHATKEEP_PORT=9380 \
    CHATKEEP_SERVER_BASE_PATH="" \
    CHATKEEP_SERVER_DRAIN_TIMEOUT=3
VOLUME /srv/chatkeep/var
USER 10001:10001
EXPOSE 9380
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import http.client as h, os; c = h.HTTPConnection('127.0.0.1', int(os.environ['CHATKEEP_PORT']), timeout=4); c.request('GET', os.environ['CHATKEEP_SERVER_BASE_PATH'] + '/readyz'); raise SystemExit(c.getresponse().status != 200)"]
CMD ["chatkeep", "serve"]
