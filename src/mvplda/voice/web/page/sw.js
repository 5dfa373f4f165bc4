// Service worker that stores all files of the site, so that the page works without a network.
// `mvplda web` writes the constants VERSION and FILES above.

const CACHE = `mvplda-${VERSION}`;

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)).then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  const remove = async () => {
    const names = (await caches.keys()).filter((name) => name.startsWith("mvplda-") && name !== CACHE);
    await Promise.all(names.map((name) => caches.delete(name)));
    await self.clients.claim();
  };
  event.waitUntil(remove());
});

self.addEventListener("fetch", (event) => {
  if (event.request.method !== "GET") return;
  const cached = caches.open(CACHE).then((cache) => cache.match(event.request, { ignoreSearch: true }));
  event.respondWith(cached.then((answer) => answer ?? fetch(event.request)));
});
