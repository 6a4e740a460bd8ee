/* The C side of the benchmarks: the least that a call into C can cost, and loops for the clock.

   Compiled by _peers.py into a temporary folder. The extension checks nothing: it is the floor that
   a checked call is compared with, not a way to write one. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <time.h>

/* From dlpack.h 1.3 (DLTensor, DLPackExchangeAPI); only what is used is named. */
typedef struct {
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} Tensor;
typedef struct {
  uint32_t major, minor;
  void *previous, *allocate, *managed_from_py, *managed_to_py;
  int (*from_py)(void *object, Tensor *out); /* borrows, does not synchronise */
  void *current_stream;
} Exchange;

static const Exchange *exchange;

void scaled_add(float *dst, const float *a, const float *b, int64_t n, double alpha) {
  float factor = (float)alpha;
  for (int64_t i = 0; i < n; i++) dst[i] = a[i] + factor * b[i];
}

static PyObject *raw_scaled_add(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  (void)self, (void)count;
  Tensor dst, a, b;
  exchange->from_py(args[0], &dst);
  exchange->from_py(args[1], &a);
  exchange->from_py(args[2], &b);
  scaled_add(dst.data, a.data, b.data, dst.shape[0], PyFloat_AsDouble(args[3]));
  Py_RETURN_NONE;
}

static PyObject *nothing(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  (void)self, (void)args, (void)count;
  Py_RETURN_NONE;
}

static PyObject *open_exchange(PyObject *self, PyObject *capsule) {
  (void)self;
  exchange = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
  if (!exchange) return NULL;
  if (exchange->major != 1) return PyErr_Format(PyExc_RuntimeError, "DLPack %u", exchange->major);
  Py_RETURN_NONE;
}

/* Loops: nanoseconds that `count` calls of one function took. */
static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int64_t loop_get(int32_t (*f)(void *, int64_t *), void *tensor, int64_t count) {
  int64_t out, start = now();
  for (int64_t i = 0; i < count; i++) f(tensor, &out);
  return now() - start;
}

int64_t loop_ask(_Bool (*f)(void *), void *tensor, int64_t count) {
  int64_t start = now();
  for (int64_t i = 0; i < count; i++) f(tensor);
  return now() - start;
}

int64_t loop_gil(int64_t count) {
  int64_t start = now();
  for (int64_t i = 0; i < count; i++) PyEval_RestoreThread(PyEval_SaveThread());
  return now() - start;
}

int32_t empty(void *tensor, int64_t *out) {
  (void)tensor;
  *out = 0;
  return 0;
}

static PyMethodDef methods[] = {
    {"scaled_add", (PyCFunction)(void *)raw_scaled_add, METH_FASTCALL, NULL},
    {"nothing", (PyCFunction)(void *)nothing, METH_FASTCALL, NULL},
    {"open_exchange", open_exchange, METH_O, NULL},
    {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "bench_peers", NULL, -1, methods,
                                    NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit_bench_peers(void) { return PyModule_Create(&module); }
