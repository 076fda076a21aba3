FROM python:3.13-slim

RUN useradd --system --create-home --home-dir /home/holdfast holdfast

WORKDIR /src
COPY . .
RUN pip install --no-cache-dir . && rm -rf /src

USER holdfast
WORKDIR /home/holdfast
EXPOSE 8080
CMD ["holdfast", "serve", "--host", "0.0.0.0"]
