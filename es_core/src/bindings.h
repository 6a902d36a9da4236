// What the bindings check of their arguments: dtype, contiguity, shape and range.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "replicated/noise.h"

namespace fedlearn {

namespace py = pybind11;

constexpr std::int64_t kMaxParameters = std::int64_t{1} << 31;
constexpr std::int64_t kMaxTensors = 65536;

inline std::string shape_text(const py::array& array) {
    return py::str(array.attr("dtype")).cast<std::string>() + py::str(array.attr("shape")).cast<std::string>();
}

// A C-contiguous array of Value with the expected number of dimensions, or ValueError.
template <class Value>
py::array_t<Value> checked(const char* name, const py::array& array, int dimensions) {
    if (!py::isinstance<py::array_t<Value, py::array::c_style>>(array) || array.ndim() != dimensions)
        throw py::value_error(std::string(name) + ": expected a C-contiguous array of " +
                              py::str(py::dtype::of<Value>()).cast<std::string>() + " with " +
                              std::to_string(dimensions) + " dimensions, got " + shape_text(array));
    return py::array_t<Value>(array);
}

inline void require(bool condition, const std::string& message) {
    if (!condition) throw py::value_error(message);
}

template <class Value>
std::span<const Value> view(const py::array_t<Value>& array) {
    return {array.data(), static_cast<std::size_t>(array.size())};
}

template <class Value>
std::span<Value> writable(const char* name, py::array_t<Value>& array) {
    require(array.writeable(), std::string(name) + ": expected a writable array, got a read-only one");
    return {array.mutable_data(), static_cast<std::size_t>(array.size())};
}

// Rows of (offset, rows, columns, rank, mask column); `n_parameters` bounds what they address. Rows of (number, first
// sign) say where the tensors stand in the whole model; without, they are the whole.
inline std::vector<Tensor> tensors_from(const py::array& table, std::int64_t n_parameters,
                                        const std::optional<py::array>& places = std::nullopt) {
    const auto values = checked<std::int64_t>("tensors", table, 2);
    require(values.shape(1) == 5, "tensors: expected rows of (offset, rows, columns, rank, mask column), got " +
                                      shape_text(table));
    py::array_t<std::int64_t> given;
    if (places.has_value()) {
        given = checked<std::int64_t>("places", *places, 2);
        require(given.shape(0) == values.shape(0) && given.shape(1) == 2,
                "places: expected a row of (number, first sign) a tensor, got " + shape_text(given));
    }
    std::vector<Tensor> tensors;
    for (py::ssize_t i = 0; i < values.shape(0); ++i) {
        const Tensor t{values.at(i, 0), values.at(i, 1), values.at(i, 2), values.at(i, 3), values.at(i, 4),
                       places.has_value() ? given.at(i, 0) : i, places.has_value() ? given.at(i, 1) : 0};
        require(t.rows > 0 && t.columns > 0 && t.rows <= kMaxParameters / t.columns && t.offset >= 0 &&
                    t.offset <= n_parameters - t.rows * t.columns,
                "tensors: expected row " + std::to_string(i) + " to lie within " + std::to_string(n_parameters) +
                    " parameters");
        require(t.rank >= 0 && t.rank <= kMaxRank, "tensors: expected a rank from 0 to 8, got " + std::to_string(t.rank));
        require(t.number >= 0 && t.number < kMaxTensors && t.first_sign >= 0 && t.first_sign <= kMaxParameters,
                "places: expected a number from 0 to 65535 and a first sign from 0 to 2^31, got " +
                    std::to_string(t.number) + ", " + std::to_string(t.first_sign));
        tensors.push_back(t);
    }
    require(!tensors.empty() && std::ssize(tensors) < kMaxTensors, "tensors: expected 1 to 65535 tensors");
    return tensors;
}

inline void require_pairs(bool antithetic, std::int64_t group_size) {
    require(!antithetic || group_size % 2 == 0,
            "group_size: expected an even number with antithetic pairs, got " + std::to_string(group_size));
}

// Adds the RNN's functions to the module.
void bind_rnn(py::module_& m);

}  // namespace fedlearn
